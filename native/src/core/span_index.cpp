#include "core/span_index.h"

#include <algorithm>
#include <limits>

#include "core/bytes.h"

namespace fastio {

namespace {

/// Entries as numbers of bytes; one that would wrap around is negative, far from every file.
class InBytes {
 public:
  explicit InBytes(const IndexNumbers& numbers) noexcept
      : numbers_(numbers),
        most_((std::numeric_limits<std::int64_t>::max() - numbers.base) / numbers.unit) {}

  [[nodiscard]] std::int64_t operator[](std::size_t i) const noexcept {
    const std::int64_t value = numbers_.data[i];
    return value < 0 || value > most_ ? -1 : value * numbers_.unit + numbers_.base;
  }

 private:
  const IndexNumbers& numbers_;
  const std::int64_t most_;
};

bool has_size(const SpanIndex& index, std::int64_t size) noexcept {
  if (index.exact >= 0) return size == index.exact;
  if (index.multiple == 0) return size == 0;
  return index.multiple == 1 || size % index.multiple == 0;
}

/// Whether what the index says of a sample is what was written.
bool is_right(const SpanIndex& index, std::size_t sample, bool with_checksum) noexcept {
  const auto right = [sample](Pieces* pieces, std::size_t width) {
    return pieces == nullptr || pieces->is_right(sample * width);
  };
  return right(index.starts.pieces, sizeof(std::int64_t)) &&
         right(index.sizes.pieces, sizeof(std::int64_t)) &&
         (!with_checksum || right(index.checksum_pieces, sizeof(std::uint32_t)));
}

}  // namespace

std::size_t pick(const SpanIndex& index, std::span<const std::int64_t> samples,
                 const PickedSpans& out) noexcept {
  constexpr std::size_t ahead = 32;
  const bool with_checksums = index.checksums != nullptr && out.checksums != nullptr;
  const auto whole = [](const Pieces* pieces) { return pieces == nullptr || pieces->is_whole(); };
  const bool is_whole = whole(index.starts.pieces) && whole(index.sizes.pieces) &&
                        (!with_checksums || whole(index.checksum_pieces));
  const InBytes starts(index.starts);
  const InBytes sizes(index.sizes);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    // Not in a function of its own: gcc 12 drops calls of one that only prefetches.
    const auto next = static_cast<std::size_t>(samples[std::min(i + ahead, samples.size() - 1)]);
    if (next < index.count) {
      __builtin_prefetch(index.starts.data + next);
      __builtin_prefetch(index.sizes.data + next);
      if (with_checksums) __builtin_prefetch(index.checksums + next);
    }
    const auto sample = static_cast<std::size_t>(samples[i]);  // a negative one is far too large
    if (sample >= index.count) return i;
    if (!is_whole && !is_right(index, sample, with_checksums)) return i;
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

}  // namespace fastio
