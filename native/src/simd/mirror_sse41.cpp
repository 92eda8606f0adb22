// Mirrored rows in SSE4.1: 16 bytes a step, the pixels of a step turned round by one shuffle.
#if defined(__x86_64__)

#include <smmintrin.h>

#include "../mirror_rows.h"

namespace fastio {
namespace {

/// Steps of `step` pixels. Bytes [lead, 16) of what is loaded are the pixels; the steps end
/// where such a load or a store of 16 bytes would leave the row.
template <std::size_t channels, std::size_t step>
void mirror(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels, __m128i turn) noexcept {
  constexpr std::size_t lead = 16 - step * channels;
  constexpr std::size_t spare = lead > 0 ? 1 : 0;
  std::size_t i = 0;
  for (; i + step + spare <= pixels; i += step) {
    const std::uint8_t* from = in + (pixels - step - i) * channels - lead;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * channels), _mm_shuffle_epi8(bytes, turn));
  }
  mirror_pixels<channels>(in, out, pixels, i);
}

}  // namespace

void sse41_mirror1(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  mirror<1, 16>(in, out, pixels,
                _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

void sse41_mirror3(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  mirror<3, 5>(in, out, pixels,
               _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0));
}

void sse41_mirror4(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  mirror<4, 4>(in, out, pixels,
               _mm_setr_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
}

}  // namespace fastio

#endif
