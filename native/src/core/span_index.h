/// The index of a field: where the values of all samples lie, and the look-up of some of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/pieces.h"

namespace fastio {

/// Numbers as a file has them: entry i, of `width` bytes from `data + i * width` on, stands for
/// `entry * unit + base`. Entries of 8 bytes are signed, narrower ones are not.
struct IndexNumbers {
  const std::uint8_t* data;
  std::size_t width;  ///< 1, 2, 4 or 8; `data` is aligned to it
  std::int64_t unit;  ///< at least 1
  std::int64_t base;  ///< at least 0
  Pieces* pieces;     ///< what `data` is compared with before it is used; nullptr: it was already
};

/// The values of all samples of a store, shard behind shard: those of shard k end before sample
/// `ends[k]` and lie in a file of `limits[k]` bytes. They have `exact` bytes, or if that is
/// negative a multiple of `multiple` (0: none).
struct SpanIndex {
  std::span<const std::int64_t> ends;
  std::span<const std::int64_t> limits;
  IndexNumbers starts;
  IndexNumbers sizes;
  const std::uint32_t* checksums;  ///< nullptr: none
  Pieces* checksum_pieces;         ///< as `IndexNumbers::pieces`
  std::size_t count;
  std::int64_t exact;
  std::int64_t multiple;
};

/// Where `pick` writes: one entry for each of the samples asked for; nullptr for checksums that
/// nobody wants.
struct PickedSpans {
  std::int32_t* shard;
  std::int64_t* starts;
  std::int64_t* sizes;
  std::uint32_t* checksums;
};

/// Copies the entries of some samples, which may lie anywhere in the index: those that come
/// next are prefetched, and very many of a large index are looked up from its front to its back.
///
/// Returns the position of the first sample that does not exist, whose part of the index is
/// damaged, or whose value is not inside its file or has a size that it may not have;
/// samples.size() when all are good. Thread-safe.
[[nodiscard]] std::size_t pick(const SpanIndex& index, std::span<const std::int64_t> samples,
                               const PickedSpans& out) noexcept;

/// The pieces of the index that these samples need and that were not compared before, those of the
/// checksums included `with_checksums`; some of them several times. Samples that do not exist need
/// none.
[[nodiscard]] std::vector<Bytes> unseen(const SpanIndex& index,
                                        std::span<const std::int64_t> samples, bool with_checksums);

/// Whether a look-up has nothing to compare any more.
[[nodiscard]] bool is_compared(const SpanIndex& index, bool with_checksums) noexcept;

/// Compares these pieces, so that a look-up need not. What differs stays unseen, for it to find.
void compare(const SpanIndex& index, std::span<const std::int64_t> samples,
             bool with_checksums) noexcept;

}  // namespace fastio
