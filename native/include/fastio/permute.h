/// Samples with their lengths in random order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fastio/philox.h"

namespace fastio {

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

}  // namespace fastio
