// Rows taken apart in NEON.
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

}  // namespace fastio

#endif
