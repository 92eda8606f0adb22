/// Whole small files into one buffer: the hot path of packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/status.h"
#include "core/thread_pool.h"

namespace fastio {

/// Where a file goes to, and how long it is to be.
struct FilePlace {
  std::int64_t start;
  std::int64_t size;
};

/// Files to read and where to.
struct FileReads {
  std::unique_ptr<const char*[]> names;  ///< NUL-terminated; owned by the caller
  std::unique_ptr<FilePlace[]> places;   ///< checked against `out`, out of the caller's reach
  std::uint8_t* out;
  std::int32_t* status;
  std::int32_t* error;  ///< errno, 0 where there was none
};

/// A task that reads file i, named from `folder` on, to `out + places[i].start`. The folder is
/// opened at once; where that fails, reading fails as it did.
///
/// `io_error` where it cannot be opened or read or is no regular file (a FIFO never
/// blocks), `changed` where it is shorter or longer than `places[i].size`.
[[nodiscard]] std::unique_ptr<Task> read_files_task(const char* folder, FileReads reads) noexcept;

// What lies under many names of one folder.

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
