#include "jpeg/jump_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/checksum.h"

namespace fastio {
namespace {

constexpr std::uint32_t tag = 0xFFFF'FF01;
constexpr std::size_t head_words = 4;
constexpr std::size_t word_bytes = sizeof(std::uint32_t);
constexpr std::size_t checked_from_word = 2;
constexpr std::size_t sampled_bytes = 32;
constexpr int parameter_bits = 5;
constexpr int spacing_bits = 7;
constexpr int longest_run = 24;  ///< of zeros; longer ones would be an escape: 32 bits follow
constexpr std::size_t most_fields = 5;

using Fields = std::array<std::uint32_t, most_fields>;

constexpr std::uint32_t little_endian(std::uint32_t value) noexcept {
  return std::endian::native == std::endian::little ? value : __builtin_bswap32(value);
}

std::uint32_t word_at(Bytes words, std::size_t number) noexcept {
  std::uint32_t word;
  std::memcpy(&word, words.data() + number * word_bytes, word_bytes);
  return little_endian(word);
}

/// Small numbers of both signs as small ones without a sign.
constexpr std::uint32_t fold(std::uint32_t difference) noexcept {
  return difference << 1 ^ (0U - (difference >> 31));
}
constexpr std::uint32_t unfold(std::uint32_t folded) noexcept {
  return folded >> 1 ^ (0U - (folded & 1));
}

/// What a point differs by from one before it, folded: the length, then DC.
Fields differences(const ScanPoint* point, const ScanPoint* above) noexcept {
  Fields fields{};
  const auto length = [](const ScanPoint* p) {
    return static_cast<std::uint32_t>(p[0].bit - p[-1].bit);
  };
  // The first row has no lengths above it.
  fields[0] = above == point - 1 ? length(point) : fold(length(point) - length(above));
  for (std::size_t c = 0; c < point->dc.size(); ++c) {
    fields[c + 1] =
        fold(static_cast<std::uint32_t>(point->dc[c]) - static_cast<std::uint32_t>(above->dc[c]));
  }
  return fields;
}

/// Which point the differences of point `i` refer to: the one above it, if that has a length.
constexpr std::size_t reference(std::size_t i, std::size_t per_row) noexcept {
  return i > per_row ? i - per_row : i - 1;
}

class BitWriter {
 public:
  explicit BitWriter(Blob& out) noexcept : out_(out) {}

  void put(std::uint32_t value, int parameter) noexcept {
    const std::uint32_t zeros = value >> parameter;
    if (zeros < longest_run) {
      bits(1, static_cast<int>(zeros) + 1);
      bits(value & ((1U << parameter) - 1), parameter);
    } else {
      bits(1, longest_run + 1);
      bits(value, 32);
    }
  }

  [[nodiscard]] bool finish() noexcept {
    if (count_ > 0) bits(0, 32 - count_);
    return sound_;
  }

 private:
  void bits(std::uint32_t value, int count) noexcept {
    buffer_ = buffer_ << count | value;
    count_ += count;
    if (count_ < 32) return;
    count_ -= 32;
    const std::uint32_t word = little_endian(static_cast<std::uint32_t>(buffer_ >> count_));
    sound_ = sound_ && out_.append(&word, sizeof word);
  }

  Blob& out_;
  std::uint64_t buffer_ = 0;
  int count_ = 0;
  bool sound_ = true;
};

class BitReader {
 public:
  explicit BitReader(Bytes words) noexcept : words_(words) {}

  [[nodiscard]] std::uint32_t take(int parameter) noexcept {
    refill();
    const int zeros = std::countl_zero(buffer_ | 1);
    drop(zeros + 1);
    if (zeros >= longest_run) [[unlikely]] {
      if (zeros > longest_run) return fail();
      refill();
      const auto value = static_cast<std::uint32_t>(buffer_ >> 32);
      drop(32);
      return value;
    }
    refill();
    const auto low = static_cast<std::uint32_t>(buffer_ >> 1 >> (63 - parameter));
    drop(parameter);
    return static_cast<std::uint32_t>(zeros) << parameter | low;
  }

  /// Whether all was there and a code.
  [[nodiscard]] bool sound() const noexcept { return sound_ && count_ >= 0; }

 private:
  /// At least 32 bits; zeros behind the end.
  void refill() noexcept {
    if (count_ >= 32 || words_.empty()) return;
    buffer_ |= std::uint64_t{word_at(words_, 0)} << (32 - count_);
    words_ = words_.subspan(word_bytes);
    count_ += 32;
  }
  void drop(int count) noexcept {
    buffer_ = count > 63 ? 0 : buffer_ << count;
    count_ -= count;
  }
  std::uint32_t fail() noexcept {
    sound_ = false;
    return 0;
  }

  Bytes words_;
  std::uint64_t buffer_ = 0;
  int count_ = 0;  ///< how many are valid; negative once more were taken
  bool sound_ = true;
};

/// The Rice parameter that takes the fewest bits, of those near the mean.
int best_parameter(std::span<const Fields> all, std::size_t field) noexcept {
  constexpr int most = 24;
  std::uint64_t sum = 0;
  for (const Fields& fields : all) sum += fields[field];
  const std::uint64_t mean = sum / std::max<std::size_t>(all.size(), 1);
  const auto mean_bits = static_cast<int>(std::bit_width(mean));
  int best = 0;
  std::uint64_t least = ~std::uint64_t{0};
  for (int k = std::max(0, mean_bits - 2); k <= std::min(mean_bits, most); ++k) {
    std::uint64_t bits = 0;
    for (const Fields& fields : all) {
      const std::uint32_t zeros = fields[field] >> k;
      bits += zeros < longest_run ? zeros + 1 + static_cast<std::uint32_t>(k) : longest_run + 33;
    }
    if (bits < least) best = k;
    least = std::min(least, bits);
  }
  return best;
}

}  // namespace

std::uint32_t noted_checksum(Bytes words, Bytes file, std::size_t origin) noexcept {
  const std::uint64_t size = file.size();
  std::array<std::uint8_t, sizeof size> size_bytes{};
  for (std::size_t i = 0; i < sizeof size; ++i) {
    size_bytes[i] = static_cast<std::uint8_t>(size >> 8 * i);
  }
  std::uint32_t value = crc32(words.subspan(checked_from_word * word_bytes));
  value = crc32(size_bytes, value);
  value = crc32(file.subspan(origin, std::min(sampled_bytes, file.size() - origin)), value);
  return crc32(file.last(std::min(sampled_bytes, file.size())), value);
}

bool is_jump_table(Bytes words) noexcept {
  return words.size() >= word_bytes && word_at(words, 0) == tag;
}

bool write_jump_table(std::span<const ScanPoint> points, const ScanGrid& grid, Bytes file,
                      Blob& out) noexcept {
  const std::size_t per_row = grid.points_per_row();
  const std::size_t count = points.size() - 1;
  Scratch memory;
  auto* fields = reinterpret_cast<Fields*>(memory.reserve(count * sizeof(Fields)));
  if (fields == nullptr) return false;
  for (std::size_t i = 1; i <= count; ++i) {
    fields[i - 1] = differences(&points[i], &points[reference(i, per_row)]);
  }
  std::array<int, most_fields> parameters{};
  auto packed = static_cast<std::uint32_t>(grid.spacing);
  for (std::size_t f = 0; f <= grid.components; ++f) {
    parameters[f] = best_parameter({fields, count}, f);
    packed |= static_cast<std::uint32_t>(parameters[f])
              << (spacing_bits + parameter_bits * static_cast<int>(f));
  }
  const std::size_t start = out.size();
  const auto origin = static_cast<std::uint32_t>(points[0].bit / 8);
  const std::array<std::uint32_t, head_words> head{little_endian(tag), 0, little_endian(packed),
                                                   little_endian(origin)};
  if (!out.append(head.data(), sizeof head)) return false;
  BitWriter writer(out);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t f = 0; f <= grid.components; ++f) writer.put(fields[i][f], parameters[f]);
  }
  if (!writer.finish()) return false;
  const std::uint32_t sum = little_endian(noted_checksum(out.bytes().subspan(start), file, origin));
  std::memcpy(out.data() + start + word_bytes, &sum, sizeof sum);
  return true;
}

bool JumpTable::read(Bytes words, Bytes file, const ScanGrid& grid, std::size_t last_row) noexcept {
  points_ = nullptr;
  if (!is_jump_table(words) || words.size() < head_words * word_bytes) return false;
  words = words.first(words.size() / word_bytes * word_bytes);
  const std::uint32_t packed = word_at(words, 2);
  const std::size_t origin = word_at(words, 3);
  if (origin > file.size() || word_at(words, 1) != noted_checksum(words, file, origin))
    return false;
  grid_ = grid;
  grid_.spacing = packed & ScanGrid::most_spacing;
  if (grid_.spacing == 0 || grid.components > ScanPoint{}.dc.size()) return false;
  per_row_ = grid_.points_per_row();
  const std::size_t count = std::min(last_row + 1, grid.rows) * per_row_ + 1;
  // A point takes at least a bit a field: what cannot be there is not made room for.
  if (count > words.size() * 8) return false;
  std::array<int, most_fields> parameters{};
  for (std::size_t f = 0; f < most_fields; ++f) {
    parameters[f] = static_cast<int>(packed >> (spacing_bits + parameter_bits * f) & 31);
  }
  points_ = reinterpret_cast<ScanPoint*>(memory_.reserve(count * sizeof(ScanPoint)));
  if (points_ == nullptr) return false;
  points_[0] = {std::uint64_t{origin} * 8, {}};
  BitReader reader(words.subspan(head_words * word_bytes));
  for (std::size_t i = 1; i < count && reader.sound(); ++i) {
    const std::size_t above = reference(i, per_row_);
    std::uint32_t length = reader.take(parameters[0]);
    if (above != i - 1) {
      length =
          unfold(length) + static_cast<std::uint32_t>(points_[above].bit - points_[above - 1].bit);
    }
    ScanPoint& point = points_[i];
    point.bit = points_[i - 1].bit + length;
    point.dc = points_[above].dc;
    for (std::size_t c = 0; c < grid.components; ++c) {
      point.dc[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(point.dc[c]) +
                                              unfold(reader.take(parameters[c + 1])));
    }
  }
  if (reader.sound()) return true;
  points_ = nullptr;
  return false;
}

namespace {

constexpr std::uint8_t marker_start = 0xFF;
constexpr std::uint8_t first_restart_marker = 0xD0;
constexpr std::uint8_t start_of_scan = 0xDA;
constexpr std::size_t marker_bytes = 2;
constexpr std::uint32_t intervals_tag = 0xFFFF'FF02;
constexpr std::size_t intervals_head_words = 2;

constexpr std::uint8_t marker_before(std::size_t interval) noexcept {
  return static_cast<std::uint8_t>(first_restart_marker + (interval - 1) % 8);
}

/// Where the data of the first scan begin; the file's end where there is none.
std::size_t first_scan(Bytes file) noexcept {
  std::size_t at = marker_bytes;  // behind SOI
  while (at + 4 <= file.size() && file[at] == marker_start) {
    const std::uint8_t marker = file[at + 1];
    at += marker_bytes + (std::size_t{file[at + 2]} << 8 | file[at + 3]);
    if (marker == start_of_scan) return std::min(at, file.size());
  }
  return file.size();
}

std::size_t place_at(Bytes words, std::size_t number) noexcept {
  return ~word_at(words, intervals_head_words + number);
}

}  // namespace

bool find_intervals(Bytes file, Blob& out) noexcept {
  const std::uint8_t* const stop = file.data() + file.size();
  const std::uint8_t* next = file.data() + first_scan(file);
  const std::size_t start = out.size();
  for (std::size_t interval = 1;;) {
    next = static_cast<const std::uint8_t*>(
        std::memchr(next, marker_start, static_cast<std::size_t>(stop - next)));
    if (next == nullptr || stop - next < 2) break;
    next += marker_bytes;
    if (next[-1] != marker_before(interval)) continue;
    if (interval++ % intervals_a_place != 0) continue;
    constexpr std::array<std::uint32_t, intervals_head_words> head{intervals_tag, 0};
    if (out.size() == start && !out.append(head.data(), sizeof head)) return false;
    const auto inverted = ~static_cast<std::uint32_t>(next - file.data());
    if (!out.append(&inverted, sizeof inverted)) return false;
  }
  if (out.size() == start) return true;
  const Bytes words = out.bytes().subspan(start);
  const std::uint32_t sum = noted_checksum(words, file, place_at(words, 0));
  std::memcpy(out.data() + start + sizeof intervals_tag, &sum, sizeof sum);
  return true;
}

bool Intervals::are_places_of(Bytes file) const noexcept {
  if (words_.size() < (intervals_head_words + 1) * sizeof intervals_tag ||
      word_at(words_, 0) != intervals_tag)
    return false;
  const std::size_t origin = place_at(words_, 0);
  return origin <= file.size() && word_at(words_, 1) == noted_checksum(words_, file, origin);
}

Intervals::Place Intervals::before(std::size_t number, Bytes file) const noexcept {
  constexpr Place unknown{0, {}};
  const std::size_t places =
      std::max(words_.size() / sizeof intervals_tag, intervals_head_words) - intervals_head_words;
  const std::size_t known = std::min(number / intervals_a_place, places);
  if (known == 0) return unknown;
  const std::size_t place = place_at(words_, known - 1);
  if (place < marker_bytes || place > file.size()) return unknown;
  const std::size_t interval = known * intervals_a_place;
  const std::uint8_t* const marker = file.data() + place - marker_bytes;
  const bool right = marker[0] == marker_start && marker[1] == marker_before(interval);
  return right ? Place{interval, file.subspan(place)} : unknown;
}

}  // namespace fastio
