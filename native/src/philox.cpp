#include "fastio/philox.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "philox_steps.h"

namespace fastio {

namespace {

constexpr std::uint32_t low(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value >> 32);
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

void philox_steps(const PhiloxSteps& from, std::span<std::uint32_t> out,
                  [[maybe_unused]] SimdLevel level) noexcept {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (level >= SimdLevel::avx2) done = avx2_philox_steps(from, out.size(), out.data());
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon) done = neon_philox_steps(from, out.size(), out.data());
#endif
  for (; done < out.size(); done += 4) {
    const auto step = static_cast<std::uint32_t>(from.first + done / 4);
    std::ranges::copy(philox({step, 0, from.part, from.epoch}, from.key),
                      out.begin() + static_cast<std::ptrdiff_t>(done));
  }
}

void uniform(const Draws& draws, std::span<const std::int64_t> indices,
             std::span<double> out) noexcept {
  if (indices.empty()) return;
  constexpr std::uint32_t other_than_shuffle = 0x66696F74;
  const std::array<std::uint32_t, 2> key{low(draws.seed), high(draws.seed) ^ other_than_shuffle};
  const std::size_t each = out.size() / indices.size();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<std::uint64_t>(indices[i]);
    std::array<std::uint32_t, 4> words{};
    for (std::size_t j = 0; j < each; ++j) {
      if (j % 2 == 0) words = philox({low(index), high(index), draws.epoch, low(j / 2)}, key);
      const std::size_t word = j % 2 * 2;
      const std::uint64_t bits = words[word] | std::uint64_t{words[word + 1]} << 32;
      out[i * each + j] = static_cast<double>(bits >> 11) * 0x1p-53;
    }
  }
}

void shuffle(std::span<std::int64_t> values, std::uint64_t seed, std::uint64_t stream) noexcept {
  std::array<std::uint32_t, 4> words{};
  std::uint64_t drawn = 0;
  for (std::size_t i = values.size(); i-- > 1; ++drawn) {
    const bool first = drawn % 2 == 0;
    if (first) {
      const std::uint64_t step = drawn / 2;
      words = philox({low(step), high(step), low(stream), high(stream)}, {low(seed), high(seed)});
    }
    const std::uint64_t random =
        first ? words[0] | std::uint64_t{words[1]} << 32 : words[2] | std::uint64_t{words[3]} << 32;
    __extension__ using Wide = unsigned __int128;
    const auto other = static_cast<std::size_t>((static_cast<Wide>(random) * (i + 1)) >> 64);
    std::swap(values[i], values[other]);
  }
}

}  // namespace fastio
