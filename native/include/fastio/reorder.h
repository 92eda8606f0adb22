/// The bytes of pixels put into another order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fastio/simd.h"

namespace fastio {

/// Of every pixel of 3 or 4 bytes, where its red, green, blue and alpha are.
struct ByteOrder {
  std::size_t pixel_bytes;
  std::array<std::uint8_t, 4> places;
  bool has_alpha;  ///< else it is 255
};

/// `out[i]` = the `channels` (3 or 4) bytes of the i-th of `pixels` pixels, in RGBA's order.
/// Nothing outside the pixels is read or written.
void reorder_pixels(const std::uint8_t* in, const ByteOrder& order, std::uint8_t* out,
                    std::size_t channels, std::size_t pixels, SimdLevel level) noexcept;

}  // namespace fastio
