/// Bringing bytes of files into memory before somebody needs them: mapped ones, by descriptor, or
/// into memory of the caller's; and what a cache of a certain size would hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/span_index.h"
#include "core/thread_pool.h"

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

/// Has the kernel begin to read spans of mappings (MADV_WILLNEED).
///
/// It may block as long as the disk's queue is full. Advice only: what cannot be read ahead is left
/// to be read later.
void advise_mappings(std::span<const Bytes> spans) noexcept;

/// The same where they are not in memory yet: it looks at 64 places of them all, and with each one
/// there it does nothing.
void read_mapped_ahead(std::span<const Bytes> spans) noexcept;

/// A task of one step that does so: give it a thread of its own.
[[nodiscard]] std::unique_ptr<Task> read_ahead_task(std::unique_ptr<Bytes[]> spans,
                                                    std::size_t count) noexcept;

/// Has the kernel begin to read what a look-up of these samples compares of the index, all at once:
/// faults would wait for one page after the other, and the kernel reads megabytes around each.
void read_index_ahead(const SpanIndex& index, std::span<const std::int64_t> samples,
                      bool with_checksums);

/// A task that does so, then compares these pieces, of `samples.size()` steps of which the first
/// waits for the kernel. Damage is left for the look-up to find. It refers to both.
[[nodiscard]] std::unique_ptr<Task> look_ahead_task(const SpanIndex& index,
                                                    std::span<const std::int64_t> samples,
                                                    bool with_checksums);

/// The same for files that are not mapped (POSIX_FADV_WILLNEED): nobody can look whether they are
/// in memory, so the kernel is asked in any case. The descriptors stay open until it is done.
[[nodiscard]] std::unique_ptr<Task> read_files_ahead_task(std::vector<FileSpan> spans) noexcept;

// Spans of files into memory, by pread instead of a mapping.

/// One span: where it lies in its file, and where it goes to.
struct SpanRead {
  int fd;  ///< stays open until the task is done
  std::int64_t start;
  std::size_t size;
  std::uint8_t* out;
  std::int32_t* error;  ///< 0: read; -1: the file ends before; else errno
};

/// Steps of the task of `read_spans_task`: what several threads share.
inline constexpr std::size_t read_spans_steps = 8;

/// A task of `read_spans_steps` steps that reads all spans, in the order of the file, near ones
/// by one call. First the kernel is told of all that is coming (see `stretches`).
[[nodiscard]] std::unique_ptr<Task> read_spans_task(std::vector<SpanRead> reads) noexcept;

}  // namespace fastio
