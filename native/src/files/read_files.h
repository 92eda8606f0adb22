/// Whole small files into one buffer: the hot path of packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

// Parts of files that were listed before: samples of a folder that is read in place.

/// Some bytes of a file, and what the file was when it was listed.
struct FilePart {
  const char* name;  ///< NUL-terminated, from the folder on; nullptr: `from` has the bytes
  const std::uint8_t* from;
  std::int64_t start;  ///< in the file
  std::int64_t size;   ///< to read
  std::int64_t file_size;
  std::int64_t mtime_ns;
  std::uint8_t* out;
  std::int32_t* status;
  std::int32_t* error;     ///< errno, 0 where there was none
  std::int64_t* spent_ns;  ///< from opening to closing
};

/// A task that reads part i of these files, each opened, read and closed; `folder` as in
/// `read_files_task`. A file of several parts, told by one `name` (the address), stays open until
/// all are read, most_shared of them at most: one descriptor more is open for each thread.
///
/// `io_error` where a file cannot be opened or read or is no regular file, `changed` where it has
/// another size or time of modification once its bytes are read: what came may be of two versions.
inline constexpr std::size_t most_shared = 64;
[[nodiscard]] std::unique_ptr<Task> read_parts_task(const char* folder,
                                                    std::vector<FilePart> parts) noexcept;

/// A task that has the kernel begin to read these parts (POSIX_FADV_WILLNEED). Advice only: what
/// cannot be read ahead is left to be read later. Neither bytes nor status are written.
[[nodiscard]] std::unique_ptr<Task> advise_parts_task(const char* folder,
                                                      std::vector<FilePart> parts) noexcept;

// What lies under many names of one folder.

/// One row of what `stat_files` finds; `mode` and `blocks` (of 512 bytes) as in `struct stat`.
struct FileStat {
  std::int64_t error;  ///< errno, 0 where there was none; the others are 0 otherwise
  std::int64_t mode;
  std::int64_t size;
  std::int64_t blocks;
  std::int64_t mtime_ns;
};

/// Looks at `names[i]` in the folder open as `folder`, links followed, and writes row i.
void stat_files(int folder, std::span<const char* const> names, FileStat* out) noexcept;

}  // namespace fastio
