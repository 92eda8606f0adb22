#include "core/bytes.h"

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

}  // namespace fastio
