// Rows taken apart in SSE4.1: 16 pixels a step, whose bytes shuffles bring together by channel.
#if defined(__x86_64__)

#include <smmintrin.h>

#include "../split_rows.h"

namespace fastio {
namespace {

constexpr std::size_t step = 16;

__m128i load(const std::uint8_t* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

void store(std::uint8_t* to, __m128i bytes) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

/// Of 16 pixels of 3 bytes, the masks pick one channel from the first, second and third 16 bytes.
struct Pick {
  __m128i from[3];

  [[nodiscard]] __m128i of(__m128i a, __m128i b, __m128i c) const noexcept {
    return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, from[0]), _mm_shuffle_epi8(b, from[1])),
                        _mm_shuffle_epi8(c, from[2]));
  }
};

void split3(const std::uint8_t* in, std::uint8_t* out, std::size_t plane) noexcept {
  constexpr char no = -1;  // becomes 0
  const Pick red{{_mm_setr_epi8(0, 3, 6, 9, 12, 15, no, no, no, no, no, no, no, no, no, no),
                  _mm_setr_epi8(no, no, no, no, no, no, 2, 5, 8, 11, 14, no, no, no, no, no),
                  _mm_setr_epi8(no, no, no, no, no, no, no, no, no, no, no, 1, 4, 7, 10, 13)}};
  const Pick green{{_mm_setr_epi8(1, 4, 7, 10, 13, no, no, no, no, no, no, no, no, no, no, no),
                    _mm_setr_epi8(no, no, no, no, no, 0, 3, 6, 9, 12, 15, no, no, no, no, no),
                    _mm_setr_epi8(no, no, no, no, no, no, no, no, no, no, no, 2, 5, 8, 11, 14)}};
  const Pick blue{{_mm_setr_epi8(2, 5, 8, 11, 14, no, no, no, no, no, no, no, no, no, no, no),
                   _mm_setr_epi8(no, no, no, no, no, 1, 4, 7, 10, 13, no, no, no, no, no, no),
                   _mm_setr_epi8(no, no, no, no, no, no, no, no, no, no, 0, 3, 6, 9, 12, 15)}};
  const __m128i a = load(in);
  const __m128i b = load(in + 16);
  const __m128i c = load(in + 32);
  store(out, red.of(a, b, c));
  store(out + plane, green.of(a, b, c));
  store(out + 2 * plane, blue.of(a, b, c));
}

void split4(const std::uint8_t* in, std::uint8_t* out, std::size_t plane) noexcept {
  const __m128i together = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m128i a = _mm_shuffle_epi8(load(in), together);  // 4 of each channel
  const __m128i b = _mm_shuffle_epi8(load(in + 16), together);
  const __m128i c = _mm_shuffle_epi8(load(in + 32), together);
  const __m128i d = _mm_shuffle_epi8(load(in + 48), together);
  const __m128i low_ab = _mm_unpacklo_epi32(a, b);  // 8 of the first channel, 8 of the second
  const __m128i low_cd = _mm_unpacklo_epi32(c, d);
  const __m128i high_ab = _mm_unpackhi_epi32(a, b);
  const __m128i high_cd = _mm_unpackhi_epi32(c, d);
  store(out, _mm_unpacklo_epi64(low_ab, low_cd));
  store(out + plane, _mm_unpackhi_epi64(low_ab, low_cd));
  store(out + 2 * plane, _mm_unpacklo_epi64(high_ab, high_cd));
  store(out + 3 * plane, _mm_unpackhi_epi64(high_ab, high_cd));
}

template <std::size_t channels, auto split>
void rows_of(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
             std::size_t rows) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    const std::uint8_t* from = in.data + y * in.stride;
    std::uint8_t* to = out.data + y * out.stride;
    std::size_t done = 0;
    for (; done + step <= pixels; done += step) split(from + done * channels, to + done, out.plane);
    split_pixels<channels>(from, to, out.plane, done, pixels);
  }
}

}  // namespace

void sse41_split3(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept {
  rows_of<3, split3>(in, out, pixels, rows);
}

void sse41_split4(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept {
  rows_of<4, split4>(in, out, pixels, rows);
}

}  // namespace fastio

#endif
