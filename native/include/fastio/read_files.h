/// Whole small files into one buffer: the hot path of packing.
#pragma once

#include <cstdint>
#include <memory>

#include "fastio/job.h"
#include "fastio/status.h"

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

}  // namespace fastio
