#include "fastio/mirror.h"

#include "mirror_rows.h"

namespace fastio {
namespace {

template <std::size_t channels>
void scalar_mirror(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  mirror_pixels<channels>(in, out, pixels, 0);
}

}  // namespace

MirrorRow mirror_row(int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41) {
    return channels == 1 ? sse41_mirror1 : channels == 3 ? sse41_mirror3 : sse41_mirror4;
  }
#else
  (void)level;
#endif
  return channels == 1 ? scalar_mirror<1> : channels == 3 ? scalar_mirror<3> : scalar_mirror<4>;
}

}  // namespace fastio
