// PNG's row filters for 3- and 4-byte pixels in SSE4.1.
//
// Sub, Average and Paeth depend on the pixel to the left, so one pixel is one step and its
// channels are the lanes; what counts is the latency of a step. Compiled with -msse4.1, so
// nothing here runs before the dispatcher has asked the processor.
#if defined(__x86_64__)

#include <smmintrin.h>

#include <cstring>

#include "../unfilter_rows.h"

namespace fastio {
namespace {

/// Four bytes, of which a 3-byte pixel uses three.
__m128i load(const std::uint8_t* from) noexcept {
  int value;
  std::memcpy(&value, from, 4);
  return _mm_cvtsi32_si128(value);
}

template <std::size_t byte_count>
void store(std::uint8_t* to, __m128i pixel) noexcept {
  const int value = _mm_cvtsi128_si32(pixel);
  std::memcpy(to, &value, byte_count);
}

/// Runs `step(i)`, which gives the pixel at byte i, over a row. All but the last pixel are
/// written as 4 bytes (the fourth is overwritten by the next); the last one exactly.
template <std::size_t pixel_bytes, typename Step>
void each_pixel(std::uint8_t* out, std::size_t n, Step step) noexcept {
  std::size_t i = 0;
  for (; i + pixel_bytes < n; i += pixel_bytes) store<4>(out + i, step(i));
  store<pixel_bytes>(out + i, step(i));
}

void none_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
              std::size_t n) noexcept {
  std::memmove(out, in, n);
}

void up_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
            std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(in[i] + above[i]);
}

template <std::size_t pixel_bytes>
void sub_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
             std::size_t n) noexcept {
  __m128i left = _mm_setzero_si128();
  each_pixel<pixel_bytes>(out, n, [&](std::size_t i) noexcept {
    left = _mm_add_epi8(load(in + i), left);
    return left;
  });
}

template <std::size_t pixel_bytes>
void average_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
                 std::size_t n) noexcept {
  const __m128i one = _mm_set1_epi8(1);
  __m128i left = _mm_setzero_si128();
  each_pixel<pixel_bytes>(out, n, [&](std::size_t i) noexcept {
    const __m128i up = load(above + i);
    // avg_epu8 rounds up; PNG rounds down.
    const __m128i odd = _mm_and_si128(_mm_xor_si128(left, up), one);
    left = _mm_add_epi8(load(in + i), _mm_sub_epi8(_mm_avg_epu8(left, up), odd));
    return left;
  });
}

template <std::size_t pixel_bytes>
void paeth_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
               std::size_t n) noexcept {
  __m128i left = _mm_setzero_si128();    // 16-bit lanes, values 0..255
  __m128i corner = _mm_setzero_si128();  // likewise
  each_pixel<pixel_bytes>(out, n, [&](std::size_t i) noexcept {
    const __m128i up = _mm_cvtepu8_epi16(load(above + i));
    const __m128i up_corner = _mm_sub_epi16(up, corner);
    const __m128i left_corner = _mm_sub_epi16(left, corner);
    const __m128i to_left = _mm_abs_epi16(up_corner);
    const __m128i to_up = _mm_abs_epi16(left_corner);
    const __m128i to_corner = _mm_abs_epi16(_mm_add_epi16(up_corner, left_corner));
    const __m128i least = _mm_min_epi16(to_corner, _mm_min_epi16(to_left, to_up));
    // Ties go to left, then up.
    const __m128i up_or_corner = _mm_blendv_epi8(corner, up, _mm_cmpeq_epi16(least, to_up));
    const __m128i best = _mm_blendv_epi8(up_or_corner, left, _mm_cmpeq_epi16(least, to_left));
    left = _mm_add_epi8(_mm_cvtepu8_epi16(load(in + i)), best);
    corner = up;
    return _mm_packus_epi16(left, left);
  });
}

}  // namespace

const RowFilters sse41_filters3{none_row, sub_row<3>, up_row, average_row<3>, paeth_row<3>};
const RowFilters sse41_filters4{none_row, sub_row<4>, up_row, average_row<4>, paeth_row<4>};

}  // namespace fastio

#endif
