// Ids widened in AVX2: the plain loop, which the compiler turns into vectors of four ids.
#if defined(__x86_64__)

#include "tokens/widen.h"

namespace fastio {

std::uint32_t avx2_widen16(const std::uint8_t* from, std::size_t count,
                           std::int64_t* out) noexcept {
  return widen<std::uint16_t>(from, count, out);
}

std::uint32_t avx2_widen32(const std::uint8_t* from, std::size_t count,
                           std::int64_t* out) noexcept {
  return widen<std::uint32_t>(from, count, out);
}

}  // namespace fastio

#endif
