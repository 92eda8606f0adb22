// Runs of slots in AVX-512, eight or sixteen at a time; a mask stores the last ones, so that a run
// has no loop for what is left.
#if defined(__x86_64__)

#include <immintrin.h>

#include "tokens/slots.h"

namespace fastio {
namespace {

constexpr std::size_t step = 8;

/// Stores what `next(at, mask)` makes of the eight slots from `at` on.
template <typename Next>
[[gnu::always_inline]] inline void by_eights(std::size_t count, std::int64_t* out,
                                             Next next) noexcept {
  std::size_t at = 0;
  for (; at + step <= count; at += step) _mm512_storeu_si512(out + at, next(at, __mmask8{0xff}));
  if (at == count) return;
  const auto mask = static_cast<__mmask8>((1u << (count - at)) - 1);
  _mm512_mask_storeu_epi64(out + at, mask, next(at, mask));
}

void count_up(std::int64_t first, std::size_t count, std::int64_t* out) noexcept {
  __m512i values =
      _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  const __m512i further = _mm512_set1_epi64(step);
  by_eights(count, out, [&](std::size_t, __mmask8) {
    const __m512i now = values;
    values = _mm512_add_epi64(values, further);
    return now;
  });
}

void repeat(std::int64_t value, std::size_t count, std::int64_t* out) noexcept {
  const __m512i values = _mm512_set1_epi64(value);
  by_eights(count, out, [&](std::size_t, __mmask8) { return values; });
}

void repeat32(std::int32_t value, std::size_t count, std::int32_t* out) noexcept {
  const __m512i values = _mm512_set1_epi32(value);
  std::size_t at = 0;
  for (; at + 2 * step <= count; at += 2 * step) _mm512_storeu_si512(out + at, values);
  const auto mask = static_cast<__mmask16>((1u << (count - at)) - 1);
  _mm512_mask_storeu_epi32(out + at, mask, values);
}

void copy(const std::int64_t* from, std::size_t count, std::int64_t* out) noexcept {
  by_eights(count, out, [&](std::size_t at, __mmask8 mask) {
    return _mm512_maskz_loadu_epi64(mask, from + at);
  });
}

}  // namespace

constexpr SlotLoops avx512_slot_loops{count_up, repeat, repeat32, copy};

}  // namespace fastio

#endif
