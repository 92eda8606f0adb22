#include "core/bytes.h"

#include <algorithm>

namespace fastio {

std::size_t first_outside(const SpanTable& table) noexcept {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto shard = static_cast<std::size_t>(table.shard[i]);  // a negative one is far too large
    if (shard >= table.buffers.size()) return i;
    if (!fits(table.starts[i], table.sizes[i], table.buffers[shard].size())) return i;
  }
  return table.size();
}

std::size_t resolve(const SpanTable& table, std::span<Bytes> out) noexcept {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto shard = static_cast<std::size_t>(table.shard[i]);  // a negative one is far too large
    if (shard >= table.buffers.size()) return i;
    const Bytes& buffer = table.buffers[shard];
    if (!fits(table.starts[i], table.sizes[i], buffer.size())) return i;
    out[i] = {buffer.data() + table.starts[i], static_cast<std::size_t>(table.sizes[i])};
  }
  return table.size();
}

std::size_t pick(const SpanIndex& index, std::span<const std::int64_t> samples,
                 const PickedSpans& out) noexcept {
  constexpr std::size_t ahead = 32;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    // Not in a function of its own: gcc 12 takes one that does nothing but this for one that does
    // nothing.
    const auto next = static_cast<std::size_t>(samples[std::min(i + ahead, samples.size() - 1)]);
    if (next < index.count) {
      __builtin_prefetch(index.starts + next * index.stride);
      __builtin_prefetch(index.sizes + next * index.stride);
      if (index.checksums != nullptr) __builtin_prefetch(index.checksums + next);
    }
    const auto sample = static_cast<std::size_t>(samples[i]);  // a negative one is far too large
    if (sample >= index.count) return i;
    out.starts[i] = index.starts[sample * index.stride];
    out.sizes[i] = index.sizes[sample * index.stride];
    if (index.checksums != nullptr) out.checksums[i] = index.checksums[sample];
    out.shard[i] = 0;
    if (index.ends.size() > 1) {
      const auto end = std::upper_bound(index.ends.begin(), index.ends.end(), samples[i]);
      out.shard[i] = static_cast<std::int32_t>(end - index.ends.begin());
    }
  }
  return samples.size();
}

}  // namespace fastio
