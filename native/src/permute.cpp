#include "fastio/permute.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace fastio {
namespace {

constexpr std::size_t one_bucket = 65536;

using Words = std::array<std::uint32_t, 4>;

Words drawn(const Draws& draws, std::uint32_t part, std::uint64_t step) noexcept {
  constexpr std::uint32_t other_than_shuffle = 0x70657261;
  return philox(
      {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), part, draws.epoch},
      {static_cast<std::uint32_t>(draws.seed),
       static_cast<std::uint32_t>(draws.seed >> 32) ^ other_than_shuffle});
}

/// Calls `use(i, byte)` with a random byte for every i below `count`.
template <typename Use>
void bytes(const Draws& draws, std::size_t count, Use use) noexcept {
  for (std::size_t first = 0; first < count; first += 16) {
    const Words words = drawn(draws, 0, first / 16);
    const std::size_t last = std::min(first + 16, count);
    for (std::size_t i = first; i < last; ++i) {
      use(i, words[(i - first) / 4] >> (i - first) % 4 * 8 & 0xFF);
    }
  }
}

void shuffle_bucket(std::span<std::uint64_t> values, const Draws& draws,
                    std::uint32_t part) noexcept {
  Words words{};
  std::uint64_t count = 0;
  for (std::size_t i = values.size(); i-- > 1; ++count) {
    if (count % 4 == 0) words = drawn(draws, part, count / 4);
    const std::uint64_t random = words[count % 4];
    std::swap(values[i], values[random * (i + 1) >> 32]);
  }
}

}  // namespace

void in_order(std::span<const std::int32_t> lengths, std::span<std::uint64_t> out) noexcept {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    out[i] = with_length(static_cast<std::uint32_t>(lengths[i]), static_cast<std::uint32_t>(i));
  }
}

void in_random_order(std::span<const std::int32_t> lengths, const Draws& draws,
                     std::span<std::uint64_t> out) noexcept {
  const std::size_t count = lengths.size();
  if (count <= one_bucket) {
    in_order(lengths, out);
    shuffle_bucket(out, draws, 1);
    return;
  }
  std::array<std::size_t, 257> ends{};
  bytes(draws, count, [&](std::size_t, std::uint32_t bucket) { ++ends[bucket + 1]; });
  for (std::size_t bucket = 0; bucket < 256; ++bucket) ends[bucket + 1] += ends[bucket];
  const std::array<std::size_t, 257> starts = ends;
  bytes(draws, count, [&](std::size_t i, std::uint32_t bucket) {
    out[ends[bucket]++] =
        with_length(static_cast<std::uint32_t>(lengths[i]), static_cast<std::uint32_t>(i));
  });
  for (std::uint32_t bucket = 0; bucket < 256; ++bucket) {
    const std::size_t size = starts[bucket + 1] - starts[bucket];
    shuffle_bucket(out.subspan(starts[bucket], size), draws, 1 + bucket);
  }
}

}  // namespace fastio
