/// Orders in lanes: runs written out, each shuffled for itself, interleaved, dealt to ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fastio {

/// Shuffles `values[cuts[k]..cuts[k + 1])` for every k, by `shuffle` with stream `stream + k`.
/// False, and nothing done, unless the cuts ascend from 0 to the number of values.
[[nodiscard]] bool shuffle_runs(std::span<std::int64_t> values, std::span<const std::int64_t> cuts,
                                std::uint64_t seed, std::uint64_t stream) noexcept;

/// Cuts the places 0, 1, ... of `out` into `lanes` runs, lane l from l * n / lanes on, and writes
/// them round by round: round j has the j-th place of every lane that is long enough, lanes in
/// random order (by `shuffle` with stream `stream + j`, going on from the order of round j - 1).
/// `order` holds one number a lane while it works.
void interleave_lanes(std::span<std::int64_t> out, std::span<std::int64_t> order,
                      std::uint64_t seed, std::uint64_t stream) noexcept;

/// Writes `starts[k]`, `starts[k] + 1`, ... up to `stops[k]` for every k, one run after the other.
/// False unless no run ends before it starts and they fill `out` exactly.
[[nodiscard]] bool write_runs(std::span<const std::int64_t> starts,
                              std::span<const std::int64_t> stops,
                              std::span<std::int64_t> out) noexcept;

/// How an order in lanes is dealt: step s has the samples from `start + s * world_size *
/// batch_size` on, and every rank gets `batch_size` of them.
struct LaneDeal {
  std::size_t lanes;
  std::size_t start;
  std::size_t steps;
  std::size_t world_size;
  std::size_t batch_size;
};

/// Deals steps to `ranks` ranks from `first_rank` on. `places[k]` is the place of the k-th sample
/// of the order; lane l holds those from l * n / lanes on. Sorted by lane (stable), the samples of
/// a step are cut into equal parts, one a rank. `out` has a row for each of these ranks, and begins
/// it with the numbers k of its samples: steps one after the other, each ascending.
///
/// False where a place is not one of `places`, or the steps leave it or a row of `out`. Throws
/// std::bad_alloc only.
[[nodiscard]] bool deal_lanes(std::span<const std::int64_t> places, const LaneDeal& deal,
                              std::size_t first_rank, std::size_t ranks,
                              std::span<std::int64_t> out);

}  // namespace fastio
