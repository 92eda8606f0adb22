// Spans from disk are trusted in nothing.
#include <array>
#include <cstdint>
#include <limits>

#include "check.h"
#include "core/bytes.h"

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

void test_fits() {
  EXPECT(fastio::fits(0, 10, 10));
  EXPECT(fastio::fits(10, 0, 10));
  EXPECT(!fastio::fits(11, 0, 10));
  EXPECT(!fastio::fits(-1, 1, 10));
  EXPECT(!fastio::fits(1, -1, 10));
  EXPECT(!fastio::fits(huge, huge, 10));
  EXPECT(!fastio::fits(1, huge, 10));
}

void test_first_bad_span_is_named() {
  const std::array<std::uint8_t, 8> data{1, 2, 3, 4, 5, 6, 7, 8};
  const std::array<fastio::Bytes, 1> buffers{data};
  const std::array<std::int32_t, 3> shard{0, 0, 1};
  const std::array<std::int64_t, 3> starts{0, 6, 0};
  const std::array<std::int64_t, 3> sizes{8, 2, 1};
  std::array<fastio::Bytes, 3> out{};
  EXPECT(fastio::resolve({buffers, shard, starts, sizes}, out) == 2);
  EXPECT(fastio::first_outside({buffers, shard, starts, sizes}) == 2);
  EXPECT(out[1].data() == data.data() + 6 && out[1].size() == 2);
}

}  // namespace

int main() {
  test_fits();
  test_first_bad_span_is_named();
  return failures;
}
