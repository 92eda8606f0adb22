// An index is compared with its checksums where it is touched, and its entries are trusted in
// nothing.
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "core/checksum.h"
#include "core/span_index.h"

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

template <typename T>
fastio::Bytes bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(T)};
}

void test_pieces_are_compared_once_and_where_asked() {
  std::vector<std::uint8_t> data(10);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i);
  const fastio::Bytes bytes{data};
  const std::array<std::uint32_t, 3> sums{fastio::crc32(bytes.subspan(0, 4)),
                                          fastio::crc32(bytes.subspan(4, 4)),
                                          fastio::crc32(bytes.subspan(8))};
  EXPECT(fastio::Pieces::count(10, 4) == 3 && fastio::Pieces::count(8, 4) == 2);
  fastio::Pieces pieces(bytes, sums, 4);
  data[5] ^= 1;
  EXPECT(pieces.is_right(3) && !pieces.is_right(4) && pieces.is_right(9));
  EXPECT(pieces.compare(0, 4) == 3);
  EXPECT(pieces.compare(3, 10) == 1);
  EXPECT(!pieces.is_whole());
  data[5] ^= 1;
  EXPECT(pieces.compare(0, 10) == 3 && pieces.is_whole());
}

void test_entries_are_picked() {
  const std::array<std::int64_t, 2> ends{2, 3}, limits{100, 33};
  const std::vector<std::int64_t> starts{10, 20, 30}, sizes{1, 2, 3};
  const std::array<std::uint32_t, 3> known{7, 8, 9};
  fastio::SpanIndex index{ends,
                          limits,
                          {bytes_of(starts).data(), 8, 1, 0, nullptr},
                          {bytes_of(sizes).data(), 8, 1, 0, nullptr},
                          known.data(),
                          nullptr,
                          3,
                          -1,
                          1};
  std::array<std::int32_t, 3> shard{};
  std::array<std::int64_t, 3> begins{}, lengths{};
  std::array<std::uint32_t, 3> checksums{};
  const fastio::PickedSpans out{shard.data(), begins.data(), lengths.data(), checksums.data()};
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{2, 0, 2}, out) == 3);
  EXPECT((shard == std::array<std::int32_t, 3>{1, 0, 1}));
  EXPECT((begins == std::array<std::int64_t, 3>{30, 10, 30}));
  EXPECT((lengths == std::array<std::int64_t, 3>{3, 1, 3}));
  EXPECT((checksums == std::array<std::uint32_t, 3>{9, 7, 9}));
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 3, 0}, out) == 1);
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 0, -huge}, out) == 2);
  index.starts = {bytes_of(starts).data(), 8, 2, 5, nullptr};
  EXPECT(fastio::pick(index, std::array<std::int64_t, 2>{1, 0}, out) == 2);
  EXPECT(begins[0] == 45 && begins[1] == 25);
}

void test_entries_that_cannot_be() {
  const std::array<std::int64_t, 1> ends{5}, limits{100};
  const std::vector<std::int64_t> starts{0, -1, huge, 90, 100}, sizes{8, 8, 8, 11, 0};
  fastio::SpanIndex index{ends,
                          limits,
                          {bytes_of(starts).data(), 8, 1, 0, nullptr},
                          {bytes_of(sizes).data(), 8, 1, 0, nullptr},
                          nullptr,
                          nullptr,
                          5,
                          -1,
                          1};
  std::array<std::int32_t, 1> shard{};
  std::array<std::int64_t, 1> begins{}, lengths{};
  const fastio::PickedSpans out{shard.data(), begins.data(), lengths.data(), nullptr};
  const auto is_good = [&](std::int64_t sample) {
    return fastio::pick(index, std::array<std::int64_t, 1>{sample}, out) == 1;
  };
  EXPECT(is_good(0) && !is_good(1) && !is_good(2) && !is_good(3) && is_good(4));
  index.starts.unit = 2;  // which must not wrap around
  EXPECT(!is_good(2));
  index.starts.unit = 1;
  index.exact = 8;
  EXPECT(is_good(0) && !is_good(4));
  index.exact = -1;
  index.multiple = 3;
  EXPECT(!is_good(0) && is_good(4));
  index.multiple = 0;
  EXPECT(!is_good(0) && is_good(4));
}

template <typename T>
void test_entries_of_a_width() {
  constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<T>::max());
  const std::array<std::int64_t, 1> ends{3}, limits{2 * most};
  std::vector<T> starts{0, std::numeric_limits<T>::max(), 7}, sizes{9, 1, 2};
  const std::array<std::uint32_t, 3> sums{
      fastio::crc32(bytes_of(starts).first(sizeof(T))),
      fastio::crc32(bytes_of(starts).subspan(sizeof(T), sizeof(T))),
      fastio::crc32(bytes_of(starts).subspan(2 * sizeof(T)))};
  fastio::Pieces pieces(bytes_of(starts), sums, sizeof(T));
  const fastio::SpanIndex index{ends,
                                limits,
                                {bytes_of(starts).data(), sizeof(T), 1, 0, &pieces},
                                {bytes_of(sizes).data(), sizeof(T), 1, 0, nullptr},
                                nullptr,
                                nullptr,
                                3,
                                -1,
                                1};
  std::array<std::int32_t, 3> shard{};
  std::array<std::int64_t, 3> begins{}, lengths{};
  const fastio::PickedSpans out{shard.data(), begins.data(), lengths.data(), nullptr};
  starts[2] = 8;  // and no other piece
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 0, 2}, out) == 2);
  EXPECT((begins == std::array<std::int64_t, 3>{most, 0, 0}));
  EXPECT((lengths == std::array<std::int64_t, 3>{1, 9, 0}));
}

// An index of four samples in a file of 100 bytes, whose starts and checksums are compared.
fastio::SpanIndex checked_index(const std::vector<std::int64_t>& starts,
                                const std::vector<std::int64_t>& sizes,
                                const std::vector<std::uint32_t>& known,
                                fastio::Pieces& start_pieces, fastio::Pieces& known_pieces) {
  static constexpr std::array<std::int64_t, 1> ends{4}, limits{100};
  return {ends,
          limits,
          {bytes_of(starts).data(), 8, 1, 0, &start_pieces},
          {bytes_of(sizes).data(), 8, 1, 0, nullptr},
          known.data(),
          &known_pieces,
          4,
          -1,
          1};
}

void test_damage_is_seen_where_it_is_touched() {
  std::vector<std::int64_t> starts{0, 1, 2, 3}, sizes{1, 1, 1, 1};
  std::vector<std::uint32_t> known{7, 8, 9, 10};
  const auto sums_of = [](fastio::Bytes bytes) {
    return std::array<std::uint32_t, 2>{fastio::crc32(bytes.first(bytes.size() / 2)),
                                        fastio::crc32(bytes.subspan(bytes.size() / 2))};
  };
  const auto start_sums = sums_of(bytes_of(starts)), known_sums = sums_of(bytes_of(known));
  fastio::Pieces start_pieces(bytes_of(starts), start_sums, 16);
  fastio::Pieces known_pieces(bytes_of(known), known_sums, 8);
  const auto index = checked_index(starts, sizes, known, start_pieces, known_pieces);
  starts[3] ^= 1;
  known[1] ^= 1;
  std::array<std::int32_t, 2> shard{};
  std::array<std::int64_t, 2> begins{}, lengths{};
  std::array<std::uint32_t, 2> checksums{};
  const fastio::PickedSpans all{shard.data(), begins.data(), lengths.data(), checksums.data()};
  const fastio::PickedSpans places{shard.data(), begins.data(), lengths.data(), nullptr};
  EXPECT(fastio::pick(index, std::array<std::int64_t, 2>{0, 1}, places) == 2);
  EXPECT(fastio::pick(index, std::array<std::int64_t, 2>{0, 2}, places) == 1);
  EXPECT(fastio::pick(index, std::array<std::int64_t, 2>{0, 1}, all) == 0);
}

void test_what_was_not_compared_is_told() {
  const std::vector<std::int64_t> starts{0, 1, 2, 3}, sizes{1, 1, 1, 1};
  const std::vector<std::uint32_t> known{7, 8, 9, 10};
  const std::array<std::uint32_t, 2> start_sums{fastio::crc32(bytes_of(starts).first(16)),
                                                fastio::crc32(bytes_of(starts).subspan(16))};
  const std::array<std::uint32_t, 1> known_sums{fastio::crc32(bytes_of(known))};
  fastio::Pieces start_pieces(bytes_of(starts), start_sums, 16);
  fastio::Pieces known_pieces(bytes_of(known), known_sums, 16);
  const auto index = checked_index(starts, sizes, known, start_pieces, known_pieces);
  const std::array<std::int64_t, 4> samples{0, 1, 3, -1};
  const auto found = fastio::unseen(index, samples, true);
  EXPECT(found.size() == 3);  // the two pieces of starts, and that of all checksums
  if (found.size() != 3) return;
  EXPECT(found[0].data() == bytes_of(starts).data() && found[0].size() == 16);
  EXPECT(found[1].data() == bytes_of(starts).data() + 16 && found[1].size() == 16);
  EXPECT(found[2].data() == bytes_of(known).data() && found[2].size() == 16);
  EXPECT(start_pieces.is_right(0));
  EXPECT(fastio::unseen(index, samples, false).size() == 1);
  EXPECT(start_pieces.is_right(31));
  EXPECT(fastio::unseen(index, samples, false).empty());
}

}  // namespace

int main() {
  test_pieces_are_compared_once_and_where_asked();
  test_entries_are_picked();
  test_entries_that_cannot_be();
  test_entries_of_a_width<std::uint8_t>();
  test_entries_of_a_width<std::uint16_t>();
  test_entries_of_a_width<std::uint32_t>();
  test_damage_is_seen_where_it_is_touched();
  test_what_was_not_compared_is_told();
  return failures;
}
