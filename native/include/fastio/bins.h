/// Samples packed into bins of so many tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fastio {

/// How samples are packed.
struct BinRule {
  std::size_t window;      ///< samples that are packed together
  std::size_t capacity;    ///< tokens of a bin; not less than the longest sample
  std::size_t world_size;  ///< each window gives a multiple of this, but the last
};

/// Packs each window of `samples` (see permute.h) into bins, the longest sample first, each into
/// the bin that it leaves least free (best fit decreasing), leaves their indices alone in their
/// place, bin behind bin, and returns where each bin begins, with the end of the last.
///
/// Bins of a window come fullest first; the samples of its emptiest ones, at least one bin, join
/// the next window. Throws std::bad_alloc only.
[[nodiscard]] std::vector<std::int64_t> best_fit_bins(std::span<std::uint64_t> samples,
                                                      const BinRule& rule);

}  // namespace fastio
