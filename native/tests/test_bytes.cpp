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

void test_entries_are_picked() {
  const std::array<std::int64_t, 2> ends{2, 3};
  const std::array<std::int64_t, 6> places{10, 1, 20, 2, 30, 3};
  const std::array<std::uint32_t, 3> known{7, 8, 9};
  const fastio::SpanIndex index{ends, places.data(), places.data() + 1, known.data(), 2, 3};
  std::array<std::int32_t, 3> shard{};
  std::array<std::int64_t, 3> starts{}, sizes{};
  std::array<std::uint32_t, 3> checksums{};
  const fastio::PickedSpans out{shard.data(), starts.data(), sizes.data(), checksums.data()};
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{2, 0, 2}, out) == 3);
  EXPECT((shard == std::array<std::int32_t, 3>{1, 0, 1}));
  EXPECT((starts == std::array<std::int64_t, 3>{30, 10, 30}));
  EXPECT((sizes == std::array<std::int64_t, 3>{3, 1, 3}));
  EXPECT((checksums == std::array<std::uint32_t, 3>{9, 7, 9}));
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 3, 0}, out) == 1);
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 0, -huge}, out) == 2);
}

}  // namespace

int main() {
  test_fits();
  test_first_bad_span_is_named();
  test_entries_are_picked();
  return failures;
}
