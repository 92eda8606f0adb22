#include "pictures/pixels.h"

namespace fastio {

void rgb_to_grey(const std::uint8_t* rgb, std::uint8_t* out, std::size_t width) noexcept {
  for (std::size_t x = 0; x < width; ++x, rgb += 3) out[x] = luma(rgb[0], rgb[1], rgb[2]);
}

void reorder_pixels(const std::uint8_t* in, const ByteOrder& order, std::uint8_t* out,
                    std::size_t channels, std::size_t pixels, SimdLevel level) noexcept {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41) done = sse41_reorder(in, order, out, channels, pixels);
#else
  (void)level;
#endif
  for (; done < pixels; ++done) {
    const std::uint8_t* pixel = in + done * order.pixel_bytes;
    std::uint8_t* to = out + done * channels;
    for (std::size_t c = 0; c < 3; ++c) to[c] = pixel[order.places[c]];
    if (channels == 4) to[3] = order.has_alpha ? pixel[order.places[3]] : 255;
  }
}

}  // namespace fastio
