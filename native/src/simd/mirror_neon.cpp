// Mirrored rows in NEON.
#if defined(__aarch64__)

#include "simd/mirror_highway.h"

namespace fastio {

void neon_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept {
  mirror1(in, out, pixels, rows);
}

void neon_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept {
  mirror3(in, out, pixels, rows);
}

void neon_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept {
  mirror4(in, out, pixels, rows);
}

}  // namespace fastio

#endif
