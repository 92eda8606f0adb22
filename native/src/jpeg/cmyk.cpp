#include "jpeg/cmyk.h"

namespace fastio {
namespace {

template <CmykSpace inks, std::size_t channels>
void scalar_row(const std::uint8_t* in, std::uint8_t* out, std::size_t width) noexcept {
  convert_cmyk<inks, channels>(in, out, 0, width);
}

}  // namespace

CmykRow cmyk_row(CmykSpace inks, int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx2) return avx2_cmyk_row(inks, channels);
#else
  (void)level;
#endif
  if (inks == CmykSpace::cmyk) {
    return channels == 3 ? scalar_row<CmykSpace::cmyk, 3> : scalar_row<CmykSpace::cmyk, 4>;
  }
  return channels == 3 ? scalar_row<CmykSpace::ycck, 3> : scalar_row<CmykSpace::ycck, 4>;
}

}  // namespace fastio
