/// Bringing mapped bytes into memory before somebody needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fastio/bytes.h"
#include "fastio/job.h"

namespace fastio {

/// Addresses [first, last) to be read in one go.
struct Stretch {
  std::uintptr_t first;
  std::uintptr_t last;
};

/// What to read for these spans, which it sorts: ascending and apart.
///
/// Blocks of 4 MiB of which the spans take an eighth or more are read whole, from the first
/// span in them to the last; elsewhere each span alone, with gaps of up to 32 KiB. So at most
/// eight times the spans' bytes are read, or 32 KiB more for each of them where that is more.
[[nodiscard]] std::vector<Stretch> stretches(std::span<Bytes> spans);

/// Has the kernel begin to read what `stretches` says for these spans; looks into none of them.
void advise_all(std::span<Bytes> spans) noexcept;

/// A task of one step that has the kernel read all spans (MADV_WILLNEED) where they are not
/// in memory yet. It looks at 64 places of them all; with each one there it does nothing. Where
/// it must not look, for fear of SIGBUS, it asks the kernel in any case.
///
/// It may block as long as the disk's queue is full: give it a thread of its own. Advice
/// only: what cannot be read ahead is left to be read later.
[[nodiscard]] std::unique_ptr<Task> read_ahead_task(std::unique_ptr<Bytes[]> spans,
                                                    std::size_t count, bool looks) noexcept;

}  // namespace fastio
