#include "fastio/permute.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "fastio/simd.h"

namespace fastio {
namespace {

constexpr std::size_t one_bucket = 65536;

/// The random words of a part, one after the other.
class Words {
 public:
  Words(const Draws& draws, std::uint32_t part) noexcept
      : from_{{static_cast<std::uint32_t>(draws.seed),
               static_cast<std::uint32_t>(draws.seed >> 32) ^ other_than_shuffle},
              0,
              part,
              draws.epoch} {}

  /// At most 256 that come next, `count` where that is less, rounded up to whole steps.
  [[nodiscard]] std::span<const std::uint32_t> next(std::size_t count) noexcept {
    const std::size_t size = std::min((count + 3) / 4 * 4, words_.size());
    philox_steps(from_, {words_.data(), size}, level_);
    from_.first += static_cast<std::uint32_t>(size / 4);
    return {words_.data(), size};
  }

 private:
  static constexpr std::uint32_t other_than_shuffle = 0x70657261;

  PhiloxSteps from_;
  const SimdLevel level_ = simd_level();
  std::array<std::uint32_t, 256> words_;
};

/// Calls `use(i, byte)` with a random byte for every i below `count`.
template <typename Use>
void bytes(const Draws& draws, std::size_t count, Use use) noexcept {
  Words words(draws, 0);
  std::array<std::uint8_t, 1024> drawn;
  for (std::size_t first = 0; first < count; first += drawn.size()) {
    const std::size_t size = std::min(drawn.size(), count - first);
    const auto next = words.next((size + 3) / 4);
    for (std::size_t i = 0; i < size; ++i) {
      drawn[i] = static_cast<std::uint8_t>(next[i / 4] >> i % 4 * 8);
    }
    for (std::size_t i = 0; i < size; ++i) use(first + i, drawn[i]);
  }
}

void shuffle_bucket(std::span<std::uint64_t> values, const Draws& draws,
                    std::uint32_t part) noexcept {
  Words words(draws, part);
  for (std::size_t left = values.size(); left > 1;) {
    for (const std::uint64_t random : words.next(left - 1)) {
      if (left == 1) break;
      std::swap(values[left - 1], values[random * left >> 32]);
      --left;
    }
  }
}

}  // namespace

void in_order(const Samples& samples, std::span<std::uint64_t> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = samples[i];
}

void in_random_order(const Samples& samples, const Draws& draws,
                     std::span<std::uint64_t> out) noexcept {
  const std::size_t count = out.size();
  if (count <= one_bucket) {
    in_order(samples, out);
    shuffle_bucket(out, draws, 1);
    return;
  }
  std::array<std::size_t, 257> ends{};
  bytes(draws, count, [&](std::size_t, std::uint32_t bucket) { ++ends[bucket + 1]; });
  for (std::size_t bucket = 0; bucket < 256; ++bucket) ends[bucket + 1] += ends[bucket];
  const std::array<std::size_t, 257> starts = ends;
  bytes(draws, count,
        [&](std::size_t i, std::uint32_t bucket) { out[ends[bucket]++] = samples[i]; });
  for (std::uint32_t bucket = 0; bucket < 256; ++bucket) {
    const std::size_t size = starts[bucket + 1] - starts[bucket];
    shuffle_bucket(out.subspan(starts[bucket], size), draws, 1 + bucket);
  }
}

}  // namespace fastio
