#include "fastio/bytes.h"

namespace fastio {

std::size_t resolve(const SpanTable& table, std::span<Bytes> out) noexcept {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::int32_t shard = table.shard[i];
    if (shard < 0 || static_cast<std::size_t>(shard) >= table.buffers.size()) return i;
    const Bytes buffer = table.buffers[static_cast<std::size_t>(shard)];
    if (!fits(table.starts[i], table.sizes[i], buffer.size())) return i;
    out[i] = buffer.subspan(static_cast<std::size_t>(table.starts[i]),
                            static_cast<std::size_t>(table.sizes[i]));
  }
  return table.size();
}

}  // namespace fastio
