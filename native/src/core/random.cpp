#include "core/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "core/simd.h"

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

Permutation::Permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t stream) noexcept
    : count_(count) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(count - 1)));
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
  constexpr std::uint32_t other_than_shuffle = 0x6B657973;
  for (std::size_t i = 0; i < keys_.size(); i += 2) {
    const auto words = philox({static_cast<std::uint32_t>(i / 2), 0, low(stream), high(stream)},
                              {low(seed), high(seed) ^ other_than_shuffle});
    keys_[i] = words[0] | std::uint64_t{words[1]} << 32;
    keys_[i + 1] = words[2] | std::uint64_t{words[3]} << 32;
  }
}

std::uint64_t Permutation::once(std::uint64_t value) const noexcept {
  // Both multipliers are odd; the upper bits of the product depend on all bits of the half.
  const auto mixed = [](std::uint64_t half, std::uint64_t key) {
    std::uint64_t word = (half + key) * 0x9E3779B97F4A7C15;
    word = (word ^ word >> 32) * 0xD6E8FEB86659FD93;
    return word;
  };
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
  std::uint64_t low_half = value & low_mask;
  std::uint64_t high_half = value >> low_bits_;
  for (std::size_t i = 0; i < keys_.size(); i += 2) {
    low_half ^= mixed(high_half, keys_[i]) >> (64 - low_bits_);
    high_half ^= mixed(low_half, keys_[i + 1]) >> (64 - high_bits_);
  }
  return high_half << low_bits_ | low_half;
}

void Permutation::apply(std::span<std::int64_t> places) const noexcept {
  // A first pass without branches, whose numbers do not wait for each other.
  for (std::int64_t& place : places) {
    place = static_cast<std::int64_t>(once(static_cast<std::uint64_t>(place)));
  }
  for (std::int64_t& place : places) {
    while (static_cast<std::uint64_t>(place) >= count_) {
      place = static_cast<std::int64_t>(once(static_cast<std::uint64_t>(place)));
    }
  }
}

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

bool shuffle_runs(std::span<std::int64_t> values, std::span<const std::int64_t> cuts,
                  std::uint64_t seed, std::uint64_t stream) noexcept {
  if (cuts.empty() || cuts.front() != 0 || !std::ranges::is_sorted(cuts) ||
      cuts.back() != static_cast<std::int64_t>(values.size())) {
    return false;
  }
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    const auto first = static_cast<std::size_t>(cuts[k]);
    shuffle(values.subspan(first, static_cast<std::size_t>(cuts[k + 1]) - first), seed, stream + k);
  }
  return true;
}

void interleave_lanes(std::span<std::int64_t> out, std::span<std::int64_t> order,
                      std::uint64_t seed, std::uint64_t stream) noexcept {
  const std::size_t lanes = order.size();
  if (lanes == 0) return;
  const auto start_of = [&](std::size_t lane) { return lane * out.size() / lanes; };
  std::iota(order.begin(), order.end(), 0);
  std::size_t done = 0;
  for (std::size_t round = 0; done < out.size(); ++round) {
    shuffle(order, seed, stream + round);
    for (const std::int64_t number : order) {
      const auto lane = static_cast<std::size_t>(number);
      const std::size_t place = start_of(lane) + round;
      if (place < start_of(lane + 1)) out[done++] = static_cast<std::int64_t>(place);
    }
  }
}

bool write_runs(std::span<const std::int64_t> starts, std::span<const std::int64_t> stops,
                std::span<std::int64_t> out) noexcept {
  if (starts.size() != stops.size()) return false;
  std::size_t done = 0;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    if (stops[k] < starts[k]) return false;
    const auto length = static_cast<std::size_t>(stops[k] - starts[k]);
    if (length > out.size() - done) return false;
    std::iota(out.begin() + static_cast<std::ptrdiff_t>(done),
              out.begin() + static_cast<std::ptrdiff_t>(done + length), starts[k]);
    done += length;
  }
  return done == out.size();
}

bool deal_lanes(std::span<const std::int64_t> places, const LaneDeal& deal, std::size_t first_rank,
                std::size_t ranks, std::span<std::int64_t> out) {
  const std::size_t count = places.size();
  const std::size_t size = deal.world_size * deal.batch_size;
  const std::size_t row = ranks == 0 ? 0 : out.size() / ranks;
  if (deal.start > count || deal.steps > (count - deal.start) / size ||
      deal.steps > row / deal.batch_size || first_rank + ranks > deal.world_size) {
    return false;
  }
  const std::size_t first = first_rank * deal.batch_size;
  const std::size_t last = first + ranks * deal.batch_size;
  std::vector<std::uint32_t> lane(size);
  std::vector<std::size_t> next(deal.lanes + 1);
  std::vector<std::size_t> done(ranks);
  for (std::size_t step = 0; step < deal.steps; ++step) {
    const std::size_t begin = deal.start + step * size;
    std::ranges::fill(next, 0);
    for (std::size_t i = 0; i < size; ++i) {
      const auto place = static_cast<std::uint64_t>(places[begin + i]);
      if (place >= count) return false;
      lane[i] = static_cast<std::uint32_t>(((place + 1) * deal.lanes - 1) / count);
      ++next[lane[i] + 1];
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::ranges::fill(done, step * deal.batch_size);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t sorted = next[lane[i]]++;
      if (sorted < first || sorted >= last) continue;
      const std::size_t rank = (sorted - first) / deal.batch_size;
      out[rank * row + done[rank]++] = static_cast<std::int64_t>(begin + i);
    }
  }
  return true;
}

}  // namespace fastio
