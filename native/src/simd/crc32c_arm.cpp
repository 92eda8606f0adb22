// CRC-32C by the instructions that 64-bit ARM has for it: eight bytes a step.
#if defined(__aarch64__)
#include <arm_acle.h>

#include <cstddef>
#include <cstring>

#include "core/checksum.h"

namespace fastio {

std::uint32_t arm_crc32c(Bytes data, std::uint32_t value) noexcept {
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= data.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t next = 0;
    std::memcpy(&next, data.data() + at, sizeof(next));
    value = __crc32cd(value, next);
  }
  for (; at < data.size(); ++at) value = __crc32cb(value, data[at]);
  return value;
}

}  // namespace fastio
#endif
