// Philox against the vectors of its authors, and the shuffle against itself.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"
#include "core/random.h"

namespace {

using Words = std::array<std::uint32_t, 4>;

void test_known_answers() {
  EXPECT((fastio::philox({0, 0, 0, 0}, {0, 0}) ==
          Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT((fastio::philox({ones, ones, ones, ones}, {ones, ones}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

std::vector<std::int64_t> shuffled(std::size_t size, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int64_t> values(size);
  std::iota(values.begin(), values.end(), 0);
  fastio::shuffle(values, seed, stream);
  return values;
}

void test_shuffle_is_a_permutation() {
  for (const std::size_t size : {0, 1, 2, 3, 1000}) {
    std::vector<std::int64_t> values = shuffled(size, 1, 2);
    std::sort(values.begin(), values.end());
    for (std::size_t i = 0; i < size; ++i) EXPECT(values[i] == static_cast<std::int64_t>(i));
  }
}

void test_seed_and_stream_matter() {
  EXPECT(shuffled(100, 1, 2) == shuffled(100, 1, 2));
  EXPECT(shuffled(100, 1, 2) != shuffled(100, 1, 3));
  EXPECT(shuffled(100, 1, 2) != shuffled(100, 2, 2));
}

void test_every_place_of_a_permutation() {
  for (const std::uint64_t count : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 65537}) {
    std::vector<std::int64_t> values(count);
    std::iota(values.begin(), values.end(), 0);
    const fastio::Permutation permutation(count, 1, 2);
    permutation.apply(values);
    std::vector<std::int64_t> last{static_cast<std::int64_t>(count) - 1};
    permutation.apply(last);
    EXPECT(last[0] == values.back());
    std::ranges::sort(values);
    for (std::size_t i = 0; i < count; ++i) EXPECT(values[i] == static_cast<std::int64_t>(i));
  }
}

}  // namespace

int main() {
  test_known_answers();
  test_shuffle_is_a_permutation();
  test_every_place_of_a_permutation();
  test_seed_and_stream_matter();
  return failures;
}
