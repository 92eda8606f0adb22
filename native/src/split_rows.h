/// Rows taken apart into planes by instruction set (inside the core only).
#pragma once

#include "fastio/planes.h"

namespace fastio {

/// Pixels [first, pixels) of one row, one by one.
template <std::size_t channels>
void split_pixels(const std::uint8_t* in, std::uint8_t* out, std::size_t plane, std::size_t first,
                  std::size_t pixels) noexcept {
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = first; i < pixels; ++i) out[c * plane + i] = in[i * channels + c];
  }
}

#if defined(__x86_64__)
void sse41_split3(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
void sse41_split4(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
#elif defined(__aarch64__)
void neon_split3(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                 std::size_t rows) noexcept;
void neon_split4(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                 std::size_t rows) noexcept;
#endif

}  // namespace fastio
