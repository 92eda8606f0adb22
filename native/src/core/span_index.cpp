#include "core/span_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/bytes.h"

namespace fastio {

namespace {

/// Entries as the numbers that they stand for; one that would wrap around is negative, far from
/// every file.
class Entries {
 public:
  explicit Entries(const IndexNumbers& numbers) noexcept
      : numbers_(numbers),
        most_((std::numeric_limits<std::int64_t>::max() - numbers.base) / numbers.unit) {}

  [[nodiscard]] std::int64_t operator[](std::size_t i) const noexcept {
    const std::int64_t value = entry(i);
    return value < 0 || value > most_ ? -1 : value * numbers_.unit + numbers_.base;
  }

  /// Where entry i lies.
  [[nodiscard]] const std::uint8_t* at(std::size_t i) const noexcept {
    return numbers_.data + i * numbers_.width;
  }

  /// Whether entry i is what was written.
  [[nodiscard]] bool is_right(std::size_t i) const noexcept {
    return numbers_.pieces == nullptr || numbers_.pieces->is_right(i * numbers_.width);
  }

  [[nodiscard]] bool is_whole() const noexcept {
    return numbers_.pieces == nullptr || numbers_.pieces->is_whole();
  }

 private:
  template <typename T>
  [[nodiscard]] std::int64_t entry_of(std::size_t i) const noexcept {
    T value;
    std::memcpy(&value, at(i), sizeof(T));
    return static_cast<std::int64_t>(value);
  }

  [[nodiscard]] std::int64_t entry(std::size_t i) const noexcept {
    switch (numbers_.width) {
      case 1: return entry_of<std::uint8_t>(i);
      case 2: return entry_of<std::uint16_t>(i);
      case 4: return entry_of<std::uint32_t>(i);
      default: return entry_of<std::int64_t>(i);
    }
  }

  const IndexNumbers numbers_;
  const std::int64_t most_;
};

bool has_size(const SpanIndex& index, std::int64_t size) noexcept {
  if (index.exact >= 0) return size == index.exact;
  if (index.multiple == 0) return size == 0;
  return index.multiple == 1 || size % index.multiple == 0;
}

}  // namespace

std::size_t pick(const SpanIndex& index, std::span<const std::int64_t> samples,
                 const PickedSpans& out) noexcept {
  constexpr std::size_t ahead = 32;
  const bool with_checksums = index.checksums != nullptr && out.checksums != nullptr;
  const Entries starts(index.starts);
  const Entries sizes(index.sizes);
  const Entries sums({reinterpret_cast<const std::uint8_t*>(index.checksums), sizeof(std::uint32_t),
                      1, 0, index.checksum_pieces});
  const bool is_whole =
      starts.is_whole() && sizes.is_whole() && (!with_checksums || sums.is_whole());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    // Not in a function of its own: gcc 12 drops calls of one that only prefetches.
    const auto next = static_cast<std::size_t>(samples[std::min(i + ahead, samples.size() - 1)]);
    if (next < index.count) {
      __builtin_prefetch(starts.at(next));
      __builtin_prefetch(sizes.at(next));
      if (with_checksums) __builtin_prefetch(sums.at(next));
    }
    const auto sample = static_cast<std::size_t>(samples[i]);  // a negative one is far too large
    if (sample >= index.count) return i;
    if (!is_whole && !(starts.is_right(sample) && sizes.is_right(sample) &&
                       (!with_checksums || sums.is_right(sample)))) {
      return i;
    }
    std::size_t shard = 0;
    if (index.ends.size() > 1) {
      const auto end = std::upper_bound(index.ends.begin(), index.ends.end(), samples[i]);
      shard = static_cast<std::size_t>(end - index.ends.begin());
    }
    const std::int64_t start = starts[sample];
    const std::int64_t size = sizes[sample];
    if (shard >= index.limits.size() ||
        !fits(start, size, static_cast<std::size_t>(index.limits[shard])) ||
        !has_size(index, size)) {
      return i;
    }
    out.shard[i] = static_cast<std::int32_t>(shard);
    out.starts[i] = start;
    out.sizes[i] = size;
    if (with_checksums) out.checksums[i] = index.checksums[sample];
  }
  return samples.size();
}

std::vector<Bytes> unseen(const SpanIndex& index, std::span<const std::int64_t> samples,
                          bool with_checksums) {
  struct Part {
    const Pieces* pieces;
    std::size_t width;
  };
  const std::array<Part, 3> parts{
      {{index.starts.pieces, index.starts.width},
       {index.sizes.pieces, index.sizes.width},
       {with_checksums ? index.checksum_pieces : nullptr, sizeof(std::uint32_t)}}};
  std::vector<Bytes> found;
  for (const Part& part : parts) {
    if (part.pieces == nullptr || part.pieces->is_whole()) continue;
    const std::uint8_t* last = nullptr;  // neighbours are mostly in one piece
    for (const std::int64_t each : samples) {
      const auto sample = static_cast<std::size_t>(each);  // a negative one is far too large
      if (sample >= index.count) continue;
      const Bytes piece = part.pieces->unseen(sample * part.width);
      if (piece.empty() || piece.data() == last) continue;
      found.push_back(piece);
      last = piece.data();
    }
  }
  return found;
}

}  // namespace fastio
