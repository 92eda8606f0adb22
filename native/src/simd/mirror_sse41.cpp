// Mirrored rows in SSE4.
#if defined(__x86_64__)

#include "simd/mirror_highway.h"

namespace fastio {

void sse41_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  mirror1(in, out, pixels, rows);
}

void sse41_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  mirror3(in, out, pixels, rows);
}

void sse41_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  mirror4(in, out, pixels, rows);
}

}  // namespace fastio

#endif
