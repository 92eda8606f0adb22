/// Rows of pixels: what a decoder writes to, conversions between layouts, and bytes of pixels put
/// into another order.
///
/// All conversions equal Pillow's `convert` to the bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/simd.h"

namespace fastio {

/// One picture of a batch: height x width x channels bytes, rows without gaps. Owned by the
/// caller. Channels are 1 (grey), 3 (RGB) or 4 (RGBA, not premultiplied).
struct Picture {
  std::uint8_t* data;
  std::size_t height;
  std::size_t width;
  int channels;

  [[nodiscard]] std::size_t row_bytes() const noexcept {
    return width * static_cast<std::size_t>(channels);
  }
  [[nodiscard]] std::uint8_t* row(std::size_t y) const noexcept { return data + y * row_bytes(); }
};

/// The numbers of a picture as stored, rows `stride` bytes apart: `channels` a pixel, of 1 or 2
/// bytes each (the machine's order, aligned).
struct NumberView {
  const std::uint8_t* data;
  std::size_t stride;
  std::size_t channels;
  std::size_t number_bytes;
};

/// ITU-R 601-2 luma in 16-bit fixed point.
[[nodiscard]] constexpr std::uint8_t luma(unsigned r, unsigned g, unsigned b) noexcept {
  return static_cast<std::uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

/// `out[i]` = luma of the i-th of `width` RGB pixels.
void rgb_to_grey(const std::uint8_t* rgb, std::uint8_t* out, std::size_t width) noexcept;

// The bytes of pixels put into another order.

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

// Reordering by instruction set (inside the core only).

#if defined(__x86_64__)
/// As `reorder_pixels`, but for the last few pixels. Returns how many are done.
std::size_t sse41_reorder(const std::uint8_t* in, const ByteOrder& order, std::uint8_t* out,
                          std::size_t channels, std::size_t pixels) noexcept;
#endif

}  // namespace fastio
