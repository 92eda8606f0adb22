/// CRC-32 as in zlib and PNG.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fastio/bytes.h"
#include "fastio/job.h"

namespace fastio {

/// Continues `value` (0 at the start) over `data`.
[[nodiscard]] std::uint32_t crc32(Bytes data, std::uint32_t value = 0) noexcept;

/// A task that writes the CRC-32 of `spans[i]` to `out[i]`. Owns `spans`, not what they
/// point to.
[[nodiscard]] std::unique_ptr<Task> checksum_task(std::unique_ptr<Bytes[]> spans,
                                                  std::uint32_t* out) noexcept;

}  // namespace fastio
