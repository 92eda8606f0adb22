#include "fastio/planes.h"

#include "split_rows.h"

namespace fastio {
namespace {

template <std::size_t channels>
void scalar_split(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    split_pixels<channels>(in.data + y * in.stride, out.data + y * out.stride, out.plane, 0,
                           pixels);
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
