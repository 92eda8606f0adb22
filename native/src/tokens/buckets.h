/// Samples of similar length in steps of a few batches; samples packed into bins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fastio {

/// How samples are cut into steps, one batch for each of `world_size` ranks.
struct StepRule {
  std::size_t window;      ///< samples that are sorted together
  std::size_t batch_size;  ///< samples of a batch; 0: as many as `max_tokens` allows
  std::size_t max_tokens;  ///< of a batch with its padding; not less than the longest sample padded
  std::size_t multiple;    ///< a batch is padded to a multiple of this
  std::size_t world_size;
};

/// Sorts each window of `samples` (see core/random.h) by length, longest first, by counting, leaves
/// their indices alone in their place, step behind step, and returns where each step begins, with
/// the end of the last.
///
/// All steps but the last hold equally many samples for every rank: `batch_size`, or as many as
/// fit when all are padded to the longest of the step. What a window leaves over joins the
/// next; the last step may be short. Lengths above 65,535 are sorted in classes, and counted
/// by the longest of their class. Throws std::bad_alloc only.
[[nodiscard]] std::vector<std::int64_t> bucket_steps(std::span<std::uint64_t> samples,
                                                     const StepRule& rule);

/// Lets step k, `size` places of `order` from k * size on, hold what step `from[k]` held; `from`
/// names each step once. Returns false, and changes nothing, where it does not or the steps
/// leave `order`. Throws std::bad_alloc only.
[[nodiscard]] bool permute_steps(std::span<std::int64_t> order, std::size_t size,
                                 std::span<const std::int64_t> from);

/// Writes one rank's samples of the steps named by `steps`, one after the other: of a step its
/// samples `rank`, `rank + world_size`, ... Step k is `order[cuts[k]]` up to `cuts[k + 1]`.
/// Returns how many were written; never more than `out` holds. Nothing else is trusted.
[[nodiscard]] std::size_t deal_steps(std::span<const std::int64_t> order,
                                     std::span<const std::int64_t> cuts,
                                     std::span<const std::int64_t> steps, std::size_t rank,
                                     std::size_t world_size, std::span<std::int64_t> out) noexcept;

/// Writes those samples of `order` that are in none of `steps` to its beginning, ascending, and
/// returns how many there are. `order` holds distinct numbers below `count`; any other is left
/// out. Steps are those of `deal_steps`. Throws std::bad_alloc only.
[[nodiscard]] std::size_t left_over(std::span<std::int64_t> order,
                                    std::span<const std::int64_t> cuts,
                                    std::span<const std::int64_t> steps, std::size_t count);

// Samples packed into bins of so many tokens.

/// How samples are packed.
struct BinRule {
  std::size_t window;      ///< samples that are packed together
  std::size_t capacity;    ///< tokens of a bin; not less than the longest sample
  std::size_t world_size;  ///< each window gives a multiple of this, but the last
  bool is_mixed;           ///< samples as they come, as far as bins get as full
};

/// Packs each window of `samples` (see core/random.h) into bins, leaves their indices alone in
/// their place, bin behind bin, and returns where each bin begins, with the end of the last.
///
/// Best fit decreasing takes the longest sample first, each into the bin that it leaves least free.
/// It puts samples of like lengths together. A mixed window takes samples as they come, and closes
/// each bin with two that leave nothing free; the last 1/16 (1/4 where that gives fewer bins) is
/// packed best fit decreasing. Where both need over 0.2 % and one bin more than best fit
/// decreasing, that packs the whole window.
///
/// Bins of a window come fullest first; the samples of its emptiest ones, at least one bin, join
/// the next window. Throws std::bad_alloc only.
[[nodiscard]] std::vector<std::int64_t> best_fit_bins(std::span<std::uint64_t> samples,
                                                      const BinRule& rule);

/// How samples are packed that count in two budgets: by their lengths in tokens, and in patches.
struct PairRule {
  std::size_t window;                     ///< samples that are packed together
  std::size_t most_tokens;                ///< of a bin; not less than the longest sample
  std::span<const std::int32_t> patches;  ///< of all samples, by index; none is negative
  std::size_t most_patches;               ///< of a bin; not less than any of these
  std::size_t world_size;                 ///< each window gives a multiple of this, but the last
};

/// As `best_fit_bins`, mixed, by two budgets.
///
/// The budget of which the samples need more is filled, and the other one kept in step: a window is
/// divided into samples that need more of the second than its mean, and the others, and the next
/// one of a bin comes from the side that brings the bin back to the mean. Each bin begins with the
/// sample that came first and is closed with two that leave at most 1/512 of the first budget free,
/// or with the best of some that were tried. What is left at the end of a window, 1/16, joins the
/// next; that of the last one is packed best fit decreasing.
[[nodiscard]] std::vector<std::int64_t> pair_bins(std::span<std::uint64_t> samples,
                                                  const PairRule& rule);

}  // namespace fastio
