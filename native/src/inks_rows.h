/// The loops behind inks_row: the scalar one, and those of instruction sets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fastio/inks.h"

namespace fastio {

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
template <Inks inks, std::size_t channels>
void convert_inks(const std::uint8_t* in, std::uint8_t* out, std::size_t first,
                  std::size_t last) noexcept {
  for (std::size_t x = first; x < last; ++x) {
    std::int32_t color[3] = {in[4 * x], in[4 * x + 1], in[4 * x + 2]};
    const std::uint32_t black = in[4 * x + 3];
    if constexpr (inks == Inks::ycck) {
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
[[nodiscard]] InksRow avx2_inks_row(Inks inks, int channels) noexcept;
#endif

}  // namespace fastio
