/// CRC-32 as in zlib and PNG.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fastio/bytes.h"
#include "fastio/job.h"
#include "fastio/simd.h"

namespace fastio {

/// Continues `value` (0 at the start) over `data`.
[[nodiscard]] std::uint32_t crc32(Bytes data, std::uint32_t value = 0) noexcept;

/// Copies `data` to `to`, which it does not overlap, and returns its CRC-32: one pass over memory,
/// where `crc32` and `memcpy` take two.
[[nodiscard]] std::uint32_t crc32_copy(Bytes data, std::uint8_t* to) noexcept;

/// How both are computed from the beginning with a given instruction set.
struct Crc32Routines {
  std::uint32_t (*crc32)(Bytes data) noexcept;
  std::uint32_t (*copy)(Bytes data, std::uint8_t* to) noexcept;
};
[[nodiscard]] const Crc32Routines& crc32_routines(SimdLevel level) noexcept;

/// A task that writes the CRC-32 of `spans[i]` to `out[i]`. Owns `spans`, not what they
/// point to.
[[nodiscard]] std::unique_ptr<Task> checksum_task(std::unique_ptr<Bytes[]> spans,
                                                  std::uint32_t* out) noexcept;

}  // namespace fastio
