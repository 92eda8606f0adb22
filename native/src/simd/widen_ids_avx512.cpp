// Ids widened in AVX-512, eight at a time. The last eight overlap those before them where the ids
// do not come to whole eights, so that there is no loop for what is left.
#if defined(__x86_64__)

#include <immintrin.h>

#include "tokens/widen.h"

namespace fastio {
namespace {

constexpr std::size_t step = 8;

template <typename Id>
[[nodiscard]] inline __m512i widened(const std::uint8_t* from) noexcept {
  if constexpr (sizeof(Id) == 2) {
    return _mm512_cvtepu16_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  } else {
    return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
}

template <typename Id>
[[nodiscard]] std::uint32_t widen_by_eights(const std::uint8_t* from, std::size_t count,
                                            std::int64_t* out) noexcept {
  if (count < step) return widen<Id>(from, count, out);
  __m512i highest = _mm512_setzero_si512();
  const auto take = [&](std::size_t at) {
    const __m512i ids = widened<Id>(from + at * sizeof(Id));
    highest = _mm512_max_epu32(highest, ids);
    _mm512_storeu_si512(out + at, ids);
  };
  for (std::size_t at = 0; at + step < count; at += step) take(at);
  take(count - step);
  return _mm512_reduce_max_epu32(highest);
}

}  // namespace

std::uint32_t avx512_widen16(const std::uint8_t* from, std::size_t count,
                             std::int64_t* out) noexcept {
  return widen_by_eights<std::uint16_t>(from, count, out);
}

std::uint32_t avx512_widen32(const std::uint8_t* from, std::size_t count,
                             std::int64_t* out) noexcept {
  return widen_by_eights<std::uint32_t>(from, count, out);
}

}  // namespace fastio

#endif
