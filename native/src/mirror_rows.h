/// Mirrored rows by instruction set (inside the core only).
#pragma once

#include <cstring>

#include "fastio/mirror.h"

namespace fastio {

/// Pixels [first, pixels) of a mirrored row, one by one.
template <std::size_t channels>
void mirror_pixels(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels,
                   std::size_t first) noexcept {
  for (std::size_t i = first; i < pixels; ++i) {
    std::memcpy(out + i * channels, in + (pixels - 1 - i) * channels, channels);
  }
}

#if defined(__x86_64__)
void sse41_mirror1(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept;
void sse41_mirror3(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept;
void sse41_mirror4(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept;
#endif

}  // namespace fastio
