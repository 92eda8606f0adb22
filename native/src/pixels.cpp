#include "fastio/pixels.h"

namespace fastio {

void rgb_to_grey(const std::uint8_t* rgb, std::uint8_t* out, std::size_t width) noexcept {
  for (std::size_t x = 0; x < width; ++x, rgb += 3) out[x] = luma(rgb[0], rgb[1], rgb[2]);
}

}  // namespace fastio
