/// Random numbers as a pure function of key and counter (Philox4x32-10), and the orders drawn from
/// them: permutations, and lanes dealt to ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/simd.h"

namespace fastio {

/// Ten rounds of Philox4x32 (Salmon et al., SC 2011); equal on every machine.
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) noexcept;

/// Counters (first, 0, part, epoch), (first + 1, 0, part, epoch), ... under one key.
struct PhiloxSteps {
  std::array<std::uint32_t, 2> key;
  std::uint32_t first;
  std::uint32_t part;
  std::uint32_t epoch;
};

/// Writes the four words of each counter, one after the other, as `philox` makes them: as many as
/// `out`, a multiple of 4, holds. No counter may pass 2**32 - 1.
void philox_steps(const PhiloxSteps& from, std::span<std::uint32_t> out, SimdLevel level) noexcept;

/// Which numbers are drawn: they depend on nothing else than these and their place.
struct Draws {
  std::uint64_t seed;
  std::uint32_t epoch;
};

/// Writes doubles of 53 bits in [0, 1): `out` holds as many for each of `indices`.
///
/// The key is `seed` (low word first), the high word XOR 0x66696F74, so that nothing is drawn
/// that `shuffle` draws; the counter is index (two words, low first), epoch, j / 2. Number j
/// is the upper 53 bits of words 0 1 (j even) or 2 3 (odd), low word first.
void uniform(const Draws& draws, std::span<const std::int64_t> indices,
             std::span<double> out) noexcept;

/// Fisher-Yates from the last place down. The key is `seed`; the counter is (step, stream),
/// two words each, low word first. Each step gives two 64-bit numbers r (words 0 1, then
/// 2 3, low first), and place i is exchanged with place (r * (i + 1)) >> 64.
void shuffle(std::span<std::int64_t> values, std::uint64_t seed, std::uint64_t stream) noexcept;

/// A permutation of 0 to count - 1 of which any place is computed alone, so none is kept.
///
/// A Feistel network on the fewest bits b that hold count - 1: of its halves of b / 2 and
/// b - b / 2 bits, each of eight rounds XORs one with bits of a mix of the other and a key,
/// in turns. Numbers that are not below count go through it again ("cycle walking": Black and
/// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Round keys are Philox numbers, the
/// key `seed` with its high word XOR 0x6B657973, the counter (round / 2, 0, stream), of whose
/// two numbers even rounds take the first.
class Permutation {
 public:
  /// `count` is at least 1.
  Permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t stream) noexcept;

  /// Replaces each of `places`, below count, by the number that the permutation has there.
  void apply(std::span<std::int64_t> places) const noexcept;

 private:
  [[nodiscard]] std::uint64_t once(std::uint64_t value) const noexcept;

  static constexpr int rounds_ = 8;
  std::uint64_t count_;
  int low_bits_;
  int high_bits_;
  std::array<std::uint64_t, rounds_> keys_{};
};

// Samples with their lengths in random order.

/// A sample and its length in one number: the length above, the index below.
[[nodiscard]] constexpr std::uint64_t with_length(std::uint32_t length,
                                                  std::uint32_t index) noexcept {
  return std::uint64_t{length} << 32 | index;
}
[[nodiscard]] constexpr std::uint32_t length_of(std::uint64_t sample) noexcept {
  return static_cast<std::uint32_t>(sample >> 32);
}
[[nodiscard]] constexpr std::uint32_t index_of(std::uint64_t sample) noexcept {
  return static_cast<std::uint32_t>(sample);
}

/// Samples to be ordered: those of `chosen`, numbers below the number of lengths, or, where that
/// is null, all.
struct Samples {
  std::span<const std::int32_t> lengths;
  const std::int64_t* chosen = nullptr;

  [[nodiscard]] std::uint64_t operator[](std::size_t i) const noexcept {
    const std::size_t index = chosen == nullptr ? i : static_cast<std::size_t>(chosen[i]);
    return with_length(static_cast<std::uint32_t>(lengths[index]),
                       static_cast<std::uint32_t>(index));
  }
};

/// Writes every sample once to `out`, as long, in the order given.
void in_order(const Samples& samples, std::span<std::uint64_t> out) noexcept;

/// The same in random order, a pure function of `draws`: samples are thrown into 256 buckets by
/// a random byte each, and every bucket is shuffled by Fisher-Yates while it lies in the cache
/// (Rao 1961, Sandelius 1962). Up to 65,536 samples are one bucket. The key is `seed` (low word
/// first), the high word XOR 0x70657261; the counter is (step, part, epoch), step of two words,
/// low first; part is 0 for the bytes (16 a step, low byte of word 0 first), and 1 + the bucket
/// for its shuffle: word r exchanges place i, from the last down, with (r * (i + 1)) >> 32.
void in_random_order(const Samples& samples, const Draws& draws,
                     std::span<std::uint64_t> out) noexcept;

// Orders in lanes: runs written out, each shuffled for itself, interleaved, dealt to ranks.

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

// Random numbers by vectors (inside the core only).

/// As `philox_steps`, a counter in each lane of a vector; returns how many of the `words` it wrote.
#if defined(__x86_64__)
std::size_t avx2_philox_steps(const PhiloxSteps& from, std::size_t words,
                              std::uint32_t* out) noexcept;
#elif defined(__aarch64__)
std::size_t neon_philox_steps(const PhiloxSteps& from, std::size_t words,
                              std::uint32_t* out) noexcept;
#endif

}  // namespace fastio
