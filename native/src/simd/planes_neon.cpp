// Rows taken apart and put together in NEON.
#if defined(__aarch64__)

#include "simd/planes_highway.h"

namespace fastio {

void neon_split3(const PixelView& in, const PlanesTarget& out, std::size_t pixels, std::size_t rows,
                 bool mirrored) noexcept {
  split<3>(in, out, pixels, rows, mirrored);
}

void neon_split4(const PixelView& in, const PlanesTarget& out, std::size_t pixels, std::size_t rows,
                 bool mirrored) noexcept {
  split<4>(in, out, pixels, rows, mirrored);
}

void neon_join3(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                std::size_t rows) noexcept {
  join<3>(in, out, pixels, rows);
}

void neon_join4(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                std::size_t rows) noexcept {
  join<4>(in, out, pixels, rows);
}

}  // namespace fastio

#endif
