#include "fastio/inks.h"

#include "inks_rows.h"

namespace fastio {
namespace {

template <Inks inks, std::size_t channels>
void scalar_row(const std::uint8_t* in, std::uint8_t* out, std::size_t width) noexcept {
  convert_inks<inks, channels>(in, out, 0, width);
}

}  // namespace

InksRow inks_row(Inks inks, int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx2) return avx2_inks_row(inks, channels);
#else
  (void)level;
#endif
  if (inks == Inks::cmyk) {
    return channels == 3 ? scalar_row<Inks::cmyk, 3> : scalar_row<Inks::cmyk, 4>;
  }
  return channels == 3 ? scalar_row<Inks::ycck, 3> : scalar_row<Inks::ycck, 4>;
}

}  // namespace fastio
