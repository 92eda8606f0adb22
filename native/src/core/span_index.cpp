#include "core/span_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

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

/// An array whose pieces are compared when they are touched, not all of which were.
struct Part {
  Pieces* pieces;
  std::size_t width;
};

/// Those that a look-up compares.
class PartsLeft {
 public:
  PartsLeft(const SpanIndex& index, bool with_checksums) noexcept {
    add(index.starts.pieces, index.starts.width);
    add(index.sizes.pieces, index.sizes.width);
    if (with_checksums) add(index.checksum_pieces, sizeof(std::uint32_t));
  }

  [[nodiscard]] const Part* begin() const noexcept { return parts_.data(); }
  [[nodiscard]] const Part* end() const noexcept { return parts_.data() + count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

 private:
  void add(Pieces* pieces, std::size_t width) noexcept {
    if (pieces != nullptr && !pieces->is_whole()) parts_[count_++] = {pieces, width};
  }

  std::array<Part, 3> parts_{};
  std::size_t count_ = 0;
};

bool has_size(const SpanIndex& index, std::int64_t size) noexcept {
  if (index.exact >= 0) return size == index.exact;
  if (index.multiple == 0) return size == 0;
  return index.multiple == 1 || size % index.multiple == 0;
}

/// The positions of these samples by where their entries lie, roughly; nullptr for as they come.
///
/// Entries of many samples that lie anywhere in an index which no cache holds are looked up from
/// its front to its back: each miss then needs less of the page tables, which are misses of their
/// own.
std::unique_ptr<std::uint32_t[]> by_place(const SpanIndex& index,
                                          std::span<const std::int64_t> samples) noexcept {
  constexpr std::size_t worth_sorting = 4096;      // samples
  constexpr std::size_t cached_entries = 2 << 20;  // so many lie in a processor's caches
  constexpr std::size_t groups = 4096;
  if (samples.size() < worth_sorting ||
      samples.size() > std::numeric_limits<std::uint32_t>::max() || index.count < cached_entries ||
      std::is_sorted(samples.begin(), samples.end())) {
    return nullptr;
  }
  std::unique_ptr<std::uint32_t[]> order(new (std::nothrow) std::uint32_t[samples.size()]);
  if (order == nullptr) return nullptr;
  const int shift = static_cast<int>(std::bit_width((index.count - 1) / groups));
  const auto group_of = [shift, last = index.count - 1](std::int64_t sample) {
    return std::min(static_cast<std::size_t>(sample), last) >> shift;
  };
  std::array<std::uint32_t, groups + 1> begins{};
  for (const std::int64_t sample : samples) ++begins[group_of(sample) + 1];
  for (std::size_t group = 1; group <= groups; ++group) begins[group] += begins[group - 1];
  for (std::size_t i = 0; i < samples.size(); ++i) {
    order[begins[group_of(samples[i])]++] = static_cast<std::uint32_t>(i);
  }
  return order;
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
  const auto order = by_place(index, samples);
  std::size_t bad = samples.size();
  for (std::size_t at = 0; at < samples.size(); ++at) {
    // Not in a function of its own: gcc 12 drops calls of one that only prefetches.
    const std::size_t later = std::min(at + ahead, samples.size() - 1);
    const auto next = static_cast<std::size_t>(samples[order ? order[later] : later]);
    if (next < index.count) {
      __builtin_prefetch(starts.at(next));
      __builtin_prefetch(sizes.at(next));
      if (with_checksums) __builtin_prefetch(sums.at(next));
    }
    const std::size_t i = order ? order[at] : at;
    const auto sample = static_cast<std::size_t>(samples[i]);  // a negative one is far too large
    bool is_good = sample < index.count;
    if (is_good && !is_whole) {
      is_good = starts.is_right(sample) && sizes.is_right(sample) &&
                (!with_checksums || sums.is_right(sample));
    }
    if (is_good) {
      std::size_t shard = 0;
      if (index.ends.size() > 1) {
        const auto end = std::upper_bound(index.ends.begin(), index.ends.end(), samples[i]);
        shard = static_cast<std::size_t>(end - index.ends.begin());
      }
      const std::int64_t start = starts[sample];
      const std::int64_t size = sizes[sample];
      is_good = shard < index.limits.size() &&
                fits(start, size, static_cast<std::size_t>(index.limits[shard])) &&
                has_size(index, size);
      out.shard[i] = static_cast<std::int32_t>(shard);
      out.starts[i] = start;
      out.sizes[i] = size;
      if (with_checksums) out.checksums[i] = index.checksums[sample];
    }
    if (!is_good) {
      bad = std::min(bad, i);
      if (!order) break;  // those behind come later in `samples`, too
    }
  }
  return bad;
}

std::vector<Bytes> unseen(const SpanIndex& index, std::span<const std::int64_t> samples,
                          bool with_checksums) {
  std::vector<Bytes> found;
  for (const Part& part : PartsLeft(index, with_checksums)) {
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

bool is_compared(const SpanIndex& index, bool with_checksums) noexcept {
  return PartsLeft(index, with_checksums).empty();
}

void compare(const SpanIndex& index, std::span<const std::int64_t> samples,
             bool with_checksums) noexcept {
  for (const Part& part : PartsLeft(index, with_checksums)) {
    for (const std::int64_t each : samples) {
      const auto sample = static_cast<std::size_t>(each);
      if (sample < index.count) (void)part.pieces->is_right(sample * part.width);
    }
  }
}

}  // namespace fastio
