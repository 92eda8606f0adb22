/// Runs of a sequence shuffled each for itself, and runs of equal length interleaved.
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

}  // namespace fastio
