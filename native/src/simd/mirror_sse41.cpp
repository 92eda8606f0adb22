// Mirrored rows in SSE4.1: 16 bytes a step, the pixels of a step turned round by one shuffle.
#if defined(__x86_64__)

#include <smmintrin.h>

#include "../mirror_rows.h"

namespace fastio {
namespace {

/// Rows in steps of `step` pixels. `turn` turns bytes [lead, 16) of what is loaded, so that no
/// step reads behind the row; the last one, which begins with the row, those from byte 0 on. It
/// overlaps the one before, where the steps do not add up, and writes no byte behind the row.
template <std::size_t channels, std::size_t step>
class Mirror {
 public:
  explicit Mirror(__m128i turn) noexcept
      : turn_(turn), last_turn_(_mm_sub_epi8(turn, _mm_set1_epi8(lead))) {}

  void rows(const PixelView& in, const PixelTarget& out, std::size_t pixels,
            std::size_t count) const noexcept {
    for (std::size_t y = 0; y < count; ++y) {
      const std::uint8_t* from = in.data + y * in.stride;
      std::uint8_t* to = out.data + y * out.stride;
      if (pixels < step + spare) {
        mirror_pixels<channels>(from, to, pixels);
      } else {
        row(from, to, pixels);
      }
    }
  }

 private:
  static constexpr std::size_t bytes = step * channels;
  static constexpr std::size_t lead = 16 - bytes;
  static constexpr std::size_t spare = lead > 0 ? 1 : 0;  // pixels that a step reads, not turns

  void row(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) const noexcept {
    const std::uint8_t* from = in + pixels * channels - 16;
    std::uint8_t* to = out;
    std::uint8_t* const last = out + (pixels - step) * channels;
    for (; to < last; from -= bytes, to += bytes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(load(from), turn_));
    }
    const __m128i turned = _mm_shuffle_epi8(load(in), last_turn_);
    if constexpr (lead == 0) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(last), turned);
    } else {
      static_assert(bytes == 15);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(last), turned);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(last + 7), _mm_srli_si128(turned, 7));
    }
  }

  static __m128i load(const std::uint8_t* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }

  __m128i turn_;
  __m128i last_turn_;
};

}  // namespace

void sse41_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  const __m128i turn = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  Mirror<1, 16>(turn).rows(in, out, pixels, rows);
}

void sse41_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  const __m128i turn = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
  Mirror<3, 5>(turn).rows(in, out, pixels, rows);
}

void sse41_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  const __m128i turn = _mm_setr_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  Mirror<4, 4>(turn).rows(in, out, pixels, rows);
}

}  // namespace fastio

#endif
