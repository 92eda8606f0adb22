// Inks to RGB in AVX2: 8 pixels a step, a pixel in 32 bits.
#if defined(__x86_64__)

#include <immintrin.h>

#include "jpeg/cmyk.h"

namespace fastio {
namespace {

constexpr std::size_t step = 8;

/// 255 - (y + factors), not negative and at most 255.
__m256i inverted(__m256i y, __m256i factors) noexcept {
  const __m256i ink = _mm256_sub_epi32(y, _mm256_srai_epi32(factors, 16));
  return _mm256_min_epi32(_mm256_max_epi32(ink, _mm256_setzero_si256()), _mm256_set1_epi32(255));
}

/// Luma and chroma to the inks that they stand for; black stays.
__m256i inks_of_ycck(__m256i pixels) noexcept {
  using F = YccFactors;
  const __m256i byte = _mm256_set1_epi32(255);
  const __m256i middle = _mm256_set1_epi32(128);
  const __m256i half = _mm256_set1_epi32(F::half);
  const __m256i y = _mm256_sub_epi32(byte, _mm256_and_si256(pixels, byte));
  const __m256i cb = _mm256_sub_epi32(_mm256_and_si256(_mm256_srli_epi32(pixels, 8), byte), middle);
  const __m256i cr =
      _mm256_sub_epi32(_mm256_and_si256(_mm256_srli_epi32(pixels, 16), byte), middle);
  const __m256i red = _mm256_mullo_epi32(cr, _mm256_set1_epi32(F::red_of_cr));
  const __m256i green =
      _mm256_add_epi32(_mm256_mullo_epi32(cb, _mm256_set1_epi32(-F::green_of_cb)),
                       _mm256_mullo_epi32(cr, _mm256_set1_epi32(-F::green_of_cr)));
  const __m256i blue = _mm256_mullo_epi32(cb, _mm256_set1_epi32(F::blue_of_cb));
  const __m256i c = inverted(y, _mm256_add_epi32(red, half));
  const __m256i m = inverted(y, _mm256_add_epi32(green, half));
  const __m256i yellow = inverted(y, _mm256_add_epi32(blue, half));
  const __m256i black = _mm256_and_si256(pixels, _mm256_set1_epi32(-(1 << 24)));
  return _mm256_or_si256(_mm256_or_si256(c, black),
                         _mm256_or_si256(_mm256_slli_epi32(m, 8), _mm256_slli_epi32(yellow, 16)));
}

/// Products of bytes in 16 bits each, divided by 255 and rounded.
__m256i multiply(__m256i a, __m256i b) noexcept {
  const __m256i product = _mm256_add_epi16(_mm256_mullo_epi16(a, b), _mm256_set1_epi16(128));
  return _mm256_srli_epi16(_mm256_add_epi16(product, _mm256_srli_epi16(product, 8)), 8);
}

/// 8 pixels as R, G, B, 255.
__m256i opaque(__m256i inks) noexcept {
  const __m256i bytes = _mm256_set1_epi16(255);
  const __m256i black = _mm256_srli_epi32(inks, 24);
  const __m256i blacks = _mm256_or_si256(black, _mm256_slli_epi32(black, 16));
  const __m256i red_blue = multiply(_mm256_and_si256(inks, bytes), blacks);
  const __m256i green =
      multiply(_mm256_and_si256(_mm256_srli_epi32(inks, 8), _mm256_set1_epi32(255)), blacks);
  return _mm256_or_si256(_mm256_or_si256(red_blue, _mm256_slli_epi32(green, 8)),
                         _mm256_set1_epi32(-(1 << 24)));
}

/// 24 bytes of RGB, and 8 of nothing.
__m256i without_alpha(__m256i pixels) noexcept {
  const __m256i pick = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0,
                                        1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(pixels, pick),
                                     _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
}

template <CmykSpace inks, std::size_t channels>
void row(const std::uint8_t* in, std::uint8_t* out, std::size_t width) noexcept {
  // A step stores 32 bytes: of RGB, 8 of the next pixels too.
  constexpr std::size_t stored = channels == 4 ? step : 11;
  std::size_t x = 0;
  for (; x + stored <= width; x += step) {
    __m256i pixels = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 4 * x));
    if constexpr (inks == CmykSpace::ycck) pixels = inks_of_ycck(pixels);
    pixels = opaque(pixels);
    if constexpr (channels == 3) pixels = without_alpha(pixels);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + channels * x), pixels);
  }
  convert_cmyk<inks, channels>(in, out, x, width);
}

}  // namespace

CmykRow avx2_cmyk_row(CmykSpace inks, int channels) noexcept {
  if (inks == CmykSpace::cmyk)
    return channels == 3 ? row<CmykSpace::cmyk, 3> : row<CmykSpace::cmyk, 4>;
  return channels == 3 ? row<CmykSpace::ycck, 3> : row<CmykSpace::ycck, 4>;
}

}  // namespace fastio

#endif
