/// Random numbers as a pure function of key and counter (Philox4x32-10), and a shuffle.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "fastio/simd.h"

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

}  // namespace fastio
