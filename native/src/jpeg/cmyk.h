/// The four components of CMYK and YCCK JPEGs into RGB.
///
/// To the bit what Pillow gives: it takes the inks as Adobe stores them, inverted, and converts
/// them by multiplying with black.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/simd.h"

namespace fastio {

/// What the first three components are: inks, or luma and chroma of them. The fourth is black.
enum class CmykSpace { cmyk, ycck };

/// Converts `width` pixels of 4 bytes, as they come out of the inverse DCT, to 3 (RGB) or 4
/// bytes (RGBA, opaque). `out` may be `in`, and otherwise must not overlap it.
using CmykRow = void (*)(const std::uint8_t* in, std::uint8_t* out, std::size_t width);

/// The routine for these inks and `channels`, 3 or 4. All levels give the same bytes.
[[nodiscard]] CmykRow cmyk_row(CmykSpace inks, int channels,
                               SimdLevel level = simd_level()) noexcept;

// The loops behind cmyk_row: the scalar one, and those of instruction sets.

/// Factors of libjpeg's conversion from YCC, in 16-bit fixed point.
struct YccFactors {
  static constexpr std::int32_t red_of_cr = 91881;    // 1.402
  static constexpr std::int32_t green_of_cb = 22554;  // 0.34414
  static constexpr std::int32_t green_of_cr = 46802;  // 0.71414
  static constexpr std::int32_t blue_of_cb = 116130;  // 1.772
  static constexpr std::int32_t half = 1 << 15;
};

/// a * b / 255, rounded, of two bytes.
constexpr std::uint8_t multiplied(std::uint32_t a, std::uint32_t b) noexcept {
  const std::uint32_t product = a * b + 128;
  return static_cast<std::uint8_t>((product + (product >> 8)) >> 8);
}

/// Pixels `first` to `last`, `last` excluded.
template <CmykSpace inks, std::size_t channels>
void convert_cmyk(const std::uint8_t* in, std::uint8_t* out, std::size_t first,
                  std::size_t last) noexcept {
  for (std::size_t x = first; x < last; ++x) {
    std::int32_t color[3] = {in[4 * x], in[4 * x + 1], in[4 * x + 2]};
    const std::uint32_t black = in[4 * x + 3];
    if constexpr (inks == CmykSpace::ycck) {
      using F = YccFactors;
      const std::int32_t y = 255 - color[0];
      const std::int32_t cb = color[1] - 128;
      const std::int32_t cr = color[2] - 128;
      color[0] = y - ((F::red_of_cr * cr + F::half) >> 16);
      color[1] = y - ((F::half - F::green_of_cb * cb - F::green_of_cr * cr) >> 16);
      color[2] = y - ((F::blue_of_cb * cb + F::half) >> 16);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const auto ink = static_cast<std::uint32_t>(std::clamp(color[i], 0, 255));
      out[channels * x + i] = multiplied(ink, black);
    }
    if constexpr (channels == 4) out[4 * x + 3] = 255;
  }
}

#if defined(__x86_64__)
[[nodiscard]] CmykRow avx2_cmyk_row(CmykSpace inks, int channels) noexcept;
#endif

}  // namespace fastio
