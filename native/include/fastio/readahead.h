/// Bringing bytes of files into memory before somebody needs them: mapped ones, or by descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fastio/bytes.h"
#include "fastio/job.h"

namespace fastio {

/// Bytes [first, last) to be read in one go: addresses, or places in a file.
struct Stretch {
  std::uint64_t first;
  std::uint64_t last;
};

/// What to read for these spans of one file or mapping, which it sorts: ascending and apart.
///
/// Blocks of 4 MiB of which the spans take an eighth or more are read whole, from the first
/// span in them to the last; elsewhere each span alone, with gaps of up to 32 KiB. So at most
/// eight times the spans' bytes are read, or 32 KiB more for each of them where that is more.
[[nodiscard]] std::vector<Stretch> stretches(std::span<Stretch> spans);

/// One span of an open file.
struct FileSpan {
  int fd;
  Stretch bytes;
};

/// Has the kernel begin to read what `stretches` says for these spans of an open file.
void advise_file(int fd, std::span<Stretch> spans);

/// A task of one step that has the kernel read all spans of mappings (MADV_WILLNEED) where they
/// are not in memory yet. It looks at 64 places of them all; with each one there it does nothing.
///
/// It may block as long as the disk's queue is full: give it a thread of its own. Advice
/// only: what cannot be read ahead is left to be read later.
[[nodiscard]] std::unique_ptr<Task> read_ahead_task(std::unique_ptr<Bytes[]> spans,
                                                    std::size_t count) noexcept;

/// The same for files that are not mapped (POSIX_FADV_WILLNEED): nobody can look whether they are
/// in memory, so the kernel is asked in any case. The descriptors stay open until it is done.
[[nodiscard]] std::unique_ptr<Task> read_files_ahead_task(std::vector<FileSpan> spans) noexcept;

}  // namespace fastio
