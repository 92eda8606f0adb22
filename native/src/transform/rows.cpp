#include "transform/rows.h"

namespace fastio {
namespace {

template <std::size_t channels>
void scalar_mirror(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    mirror_pixels<channels>(in.data + y * in.stride, out.data + y * out.stride, pixels);
  }
}

}  // namespace

MirrorRows mirror_rows(int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41) {
    return channels == 1 ? sse41_mirror1 : channels == 3 ? sse41_mirror3 : sse41_mirror4;
  }
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon) {
    return channels == 1 ? neon_mirror1 : channels == 3 ? neon_mirror3 : neon_mirror4;
  }
#else
  (void)level;
#endif
  return channels == 1 ? scalar_mirror<1> : channels == 3 ? scalar_mirror<3> : scalar_mirror<4>;
}

namespace {

template <std::size_t channels>
void scalar_split(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows, bool mirrored) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    split_pixels<channels>(in.data + y * in.stride, out.data + y * out.stride, out.plane, 0, pixels,
                           mirrored);
  }
}

}  // namespace

SplitRows split_rows(int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41 && channels > 1) {
    return channels == 3 ? sse41_split3 : sse41_split4;
  }
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon && channels > 1) {
    return channels == 3 ? neon_split3 : neon_split4;
  }
#else
  (void)level;
#endif
  return channels == 1 ? scalar_split<1> : channels == 3 ? scalar_split<3> : scalar_split<4>;
}

}  // namespace fastio
