/// CRC-32 as in zlib and PNG, and CRC-32C as in TFRecord.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/bytes.h"
#include "core/simd.h"
#include "core/thread_pool.h"

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

// CRC-32C (Castagnoli), as TFRecord, iSCSI and ext4 have it.

/// Returns the checksum of `data`.
[[nodiscard]] std::uint32_t crc32c(Bytes data) noexcept;

/// How it is computed with a given instruction set: from avx2 on with the instruction for it,
/// which every such processor has; with neon where the processor has one.
using Crc32cRoutine = std::uint32_t (*)(Bytes data) noexcept;
[[nodiscard]] Crc32cRoutine crc32c_routine(SimdLevel level) noexcept;

/// A task that writes the CRC-32C of `spans[i]` to `out[i]`. Owns `spans`, not what they point to.
[[nodiscard]] std::unique_ptr<Task> crc32c_task(std::unique_ptr<Bytes[]> spans,
                                                std::uint32_t* out) noexcept;

#if defined(__x86_64__)
/// With SSE4.2; continues `value`, which is not inverted (inside the core only).
std::uint32_t sse42_crc32c(Bytes data, std::uint32_t value) noexcept;
#elif defined(__aarch64__)
/// With ARM's instructions, where `platform::has_arm_crc32c`; continues `value`, which is not
/// inverted.
std::uint32_t arm_crc32c(Bytes data, std::uint32_t value) noexcept;
#endif

}  // namespace fastio
