/// What lies under many names of one folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fastio {

/// One row of what `stat_files` finds; `mode` and `blocks` (of 512 bytes) as in `struct stat`.
struct FileStat {
  std::int64_t error;  ///< errno, 0 where there was none; the others are 0 otherwise
  std::int64_t mode;
  std::int64_t size;
  std::int64_t blocks;
};

/// Looks at `names[i]` in the folder open as `folder`, links followed, and writes row i.
void stat_files(int folder, std::span<const char* const> names, FileStat* out) noexcept;

}  // namespace fastio
