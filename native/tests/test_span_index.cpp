// An index is compared with its checksums where it is touched, and its entries are trusted in
// nothing.
#include <array>
#include <cstdint>
#include <limits>
#include <span>
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

// Places for what is picked of `count` samples.
template <std::size_t count>
struct Picked {
  std::array<std::int32_t, count> shard{};
  std::array<std::int64_t, count> starts{}, sizes{};
  std::array<std::uint32_t, count> checksums{};

  fastio::PickedSpans places() { return {shard.data(), starts.data(), sizes.data(), nullptr}; }
  fastio::PickedSpans all() {
    return {shard.data(), starts.data(), sizes.data(), checksums.data()};
  }
};

// An index without checksums of numbers of one width, of samples of any size.
template <typename T>
fastio::SpanIndex index_of(std::span<const std::int64_t> ends, std::span<const std::int64_t> limits,
                           const std::vector<T>& starts, const std::vector<T>& sizes,
                           fastio::Pieces* start_pieces = nullptr) {
  return {ends,
          limits,
          {bytes_of(starts).data(), sizeof(T), 1, 0, start_pieces},
          {bytes_of(sizes).data(), sizeof(T), 1, 0, nullptr},
          nullptr,
          nullptr,
          starts.size(),
          -1,
          1};
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
  auto index = index_of(ends, limits, starts, sizes);
  index.checksums = known.data();
  Picked<3> picked;
  const auto out = picked.all();
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{2, 0, 2}, out) == 3);
  EXPECT((picked.shard == std::array<std::int32_t, 3>{1, 0, 1}));
  EXPECT((picked.starts == std::array<std::int64_t, 3>{30, 10, 30}));
  EXPECT((picked.sizes == std::array<std::int64_t, 3>{3, 1, 3}));
  EXPECT((picked.checksums == std::array<std::uint32_t, 3>{9, 7, 9}));
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 3, 0}, out) == 1);
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 0, -huge}, out) == 2);
  index.starts = {bytes_of(starts).data(), 8, 2, 5, nullptr};
  EXPECT(fastio::pick(index, std::array<std::int64_t, 2>{1, 0}, out) == 2);
  EXPECT(picked.starts[0] == 45 && picked.starts[1] == 25);
}

void test_entries_that_cannot_be() {
  const std::array<std::int64_t, 1> ends{5}, limits{100};
  const std::vector<std::int64_t> starts{0, -1, huge, 90, 100}, sizes{8, 8, 8, 11, 0};
  auto index = index_of(ends, limits, starts, sizes);
  Picked<1> picked;
  const auto out = picked.places();
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
  const auto index = index_of(ends, limits, starts, sizes, &pieces);
  Picked<3> picked;
  starts[2] = 8;  // and no other piece
  EXPECT(fastio::pick(index, std::array<std::int64_t, 3>{1, 0, 2}, picked.places()) == 2);
  EXPECT((picked.starts == std::array<std::int64_t, 3>{most, 0, 0}));
  EXPECT((picked.sizes == std::array<std::int64_t, 3>{1, 9, 0}));
}

// Four samples in a file of 100 bytes, whose starts are compared by halves, and their checksums
// in pieces of so many bytes.
struct CheckedIndex {
  explicit CheckedIndex(std::size_t known_bytes)
      : start_sums(sums_of(bytes_of(starts), 16)),
        known_sums(sums_of(bytes_of(known), known_bytes)),
        start_pieces(bytes_of(starts), start_sums, 16),
        known_pieces(bytes_of(known), known_sums, known_bytes),
        index(index_of(ends, limits, starts, sizes, &start_pieces)) {
    index.checksums = known.data();
    index.checksum_pieces = &known_pieces;
  }

  static std::vector<std::uint32_t> sums_of(fastio::Bytes bytes, std::size_t piece) {
    std::vector<std::uint32_t> sums;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      sums.push_back(fastio::crc32(bytes.subspan(at, piece)));
    return sums;
  }

  static constexpr std::array<std::int64_t, 1> ends{4}, limits{100};
  std::vector<std::int64_t> starts{0, 1, 2, 3}, sizes{1, 1, 1, 1};
  std::vector<std::uint32_t> known{7, 8, 9, 10};
  std::vector<std::uint32_t> start_sums, known_sums;
  fastio::Pieces start_pieces, known_pieces;
  fastio::SpanIndex index;
};

void test_damage_is_seen_where_it_is_touched() {
  CheckedIndex checked(8);
  checked.starts[3] ^= 1;
  checked.known[1] ^= 1;
  Picked<2> picked;
  const auto places = picked.places(), all = picked.all();
  EXPECT(fastio::pick(checked.index, std::array<std::int64_t, 2>{0, 1}, places) == 2);
  EXPECT(fastio::pick(checked.index, std::array<std::int64_t, 2>{0, 2}, places) == 1);
  EXPECT(fastio::pick(checked.index, std::array<std::int64_t, 2>{0, 1}, all) == 0);
}

void test_what_was_not_compared_is_told() {
  CheckedIndex checked(16);
  const auto starts = bytes_of(checked.starts), known = bytes_of(checked.known);
  const std::array<std::int64_t, 4> samples{0, 1, 3, -1};
  const auto found = fastio::unseen(checked.index, samples, true);
  EXPECT(found.size() == 3);  // the two pieces of starts, and that of all checksums
  if (found.size() != 3) return;
  EXPECT(found[0].data() == starts.data() && found[0].size() == 16);
  EXPECT(found[1].data() == starts.data() + 16 && found[1].size() == 16);
  EXPECT(found[2].data() == known.data() && found[2].size() == 16);
  EXPECT(checked.start_pieces.is_right(0));
  EXPECT(fastio::unseen(checked.index, samples, false).size() == 1);
  EXPECT(checked.start_pieces.is_right(31));
  EXPECT(fastio::unseen(checked.index, samples, false).empty());
}

void test_pieces_are_compared_ahead() {
  CheckedIndex checked(16);
  auto& start_pieces = checked.start_pieces;
  fastio::compare(checked.index, std::array<std::int64_t, 2>{1, -1}, false);
  EXPECT(start_pieces.unseen(0).empty() && !start_pieces.unseen(16).empty());
  EXPECT(!checked.known_pieces.is_whole());
  checked.starts[3] = 2;
  fastio::compare(checked.index, std::array<std::int64_t, 1>{3}, true);
  EXPECT(!start_pieces.unseen(16).empty() && checked.known_pieces.is_whole());
  EXPECT(!fastio::is_compared(checked.index, false));
  checked.starts[3] = 3;
  fastio::compare(checked.index, std::array<std::int64_t, 1>{2}, false);
  EXPECT(fastio::is_compared(checked.index, false) && fastio::is_compared(checked.index, true));
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
  test_pieces_are_compared_ahead();
  return failures;
}
