/// Mirrored rows by instruction set (inside the core only).
#pragma once

#include <cstring>

#include "fastio/mirror.h"

namespace fastio {

/// One row, pixel by pixel.
template <std::size_t channels>
void mirror_pixels(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  for (std::size_t i = 0; i < pixels; ++i) {
    std::memcpy(out + i * channels, in + (pixels - 1 - i) * channels, channels);
  }
}

#if defined(__x86_64__)
void sse41_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept;
void sse41_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept;
void sse41_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept;
#elif defined(__aarch64__)
void neon_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
void neon_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
void neon_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
#endif

}  // namespace fastio
