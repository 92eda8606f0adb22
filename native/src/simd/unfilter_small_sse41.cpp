// PNG's row filters for 1- and 2-byte pixels in SSE4.1: masks and greys.
//
// Such pixels are too small for lanes of their own. Sub is a running sum, which takes four steps
// for 16 bytes; Paeth copies 8 or 16 bytes of the row above or of one pixel where that is what it
// says, which is most of a mask, and goes byte by byte elsewhere. Compiled with -msse4.1, so
// nothing here runs before the dispatcher has asked the processor.
#if defined(__x86_64__)

#include <smmintrin.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "../unfilter_rows.h"

namespace fastio {
namespace {

constexpr std::size_t block = 16;

__m128i load(const std::uint8_t* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

void store(std::uint8_t* to, __m128i value) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}

void none_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
              std::size_t n) noexcept {
  std::memmove(out, in, n);
}

void up_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
            std::size_t n) noexcept {
  std::size_t i = 0;
  for (; i + block <= n; i += block) store(out + i, _mm_add_epi8(load(in + i), load(above + i)));
  for (; i < n; ++i) out[i] = static_cast<std::uint8_t>(in[i] + above[i]);
}

/// The sum of each byte and those before it at the same place of their pixels.
template <int pixel_bytes>
__m128i running_sums(__m128i bytes) noexcept {
  if constexpr (pixel_bytes == 1) bytes = _mm_add_epi8(bytes, _mm_slli_si128(bytes, 1));
  bytes = _mm_add_epi8(bytes, _mm_slli_si128(bytes, 2));
  bytes = _mm_add_epi8(bytes, _mm_slli_si128(bytes, 4));
  return _mm_add_epi8(bytes, _mm_slli_si128(bytes, 8));
}

template <std::size_t pixel_bytes>
void sub_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
             std::size_t n) noexcept {
  const __m128i last = pixel_bytes == 1 ? _mm_set1_epi8(15) : _mm_set1_epi16(15 << 8 | 14);
  __m128i left = _mm_setzero_si128();
  std::size_t i = 0;
  for (; i + block <= n; i += block) {
    const __m128i row = _mm_add_epi8(running_sums<pixel_bytes>(load(in + i)), left);
    store(out + i, row);
    left = _mm_shuffle_epi8(row, last);
  }
  for (; i < n; ++i) {
    out[i] = static_cast<std::uint8_t>(in[i] + (i < pixel_bytes ? 0 : out[i - pixel_bytes]));
  }
}

template <std::size_t pixel_bytes>
void average_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
                 std::size_t n) noexcept {
  unsigned left[pixel_bytes]{};
  for (std::size_t i = 0; i < n; i += pixel_bytes) {
    for (std::size_t c = 0; c < pixel_bytes; ++c) {
      left[c] = (in[i + c] + ((left[c] + above[i + c]) >> 1)) & 0xFF;
      out[i + c] = static_cast<std::uint8_t>(left[c]);
    }
  }
}

int paeth(int left, int up, int corner) noexcept {
  const int to_left = std::abs(up - corner);
  const int to_up = std::abs(left - corner);
  const int to_corner = std::abs(left + up - 2 * corner);
  if (to_left <= to_up && to_left <= to_corner) return left;
  return to_up <= to_corner ? up : corner;
}

/// Paeth along one row, which remembers the pixels to the left and above that.
template <std::size_t pixel_bytes>
class PaethRow {
 public:
  PaethRow(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out) noexcept
      : in_(in), above_(above), out_(out) {}

  /// Bytes [first, last), one after the other.
  void walk(std::size_t first, std::size_t last) noexcept {
    for (std::size_t i = first; i < last; i += pixel_bytes) {
      for (std::size_t c = 0; c < pixel_bytes; ++c) {
        const int up = above_[i + c];
        const int value = in_[i + c] + paeth(left_[c], up, corner_[c]);
        left_[c] = static_cast<std::uint8_t>(value);
        corner_[c] = static_cast<std::uint8_t>(up);
        out_[i + c] = left_[c];
      }
    }
  }

  /// The `size` bytes (8 or 16) from `first` on, of which nothing is added: they are those above
  /// while the pixel to the left is, and the pixel to the left while all above are equal. False
  /// where neither is so.
  template <std::size_t size>
  bool copy(std::size_t first) noexcept {
    const __m128i added = load_part<size>(in_ + first);
    if (_mm_testz_si128(added, added) == 0) return false;
    const __m128i up = load_part<size>(above_ + first);
    if (std::memcmp(left_, corner_, pixel_bytes) == 0) {
      store_part<size>(out_ + first, up);
      std::memcpy(left_, above_ + first + size - pixel_bytes, pixel_bytes);
      std::memcpy(corner_, left_, pixel_bytes);
      return true;
    }
    constexpr int all = (1 << size) - 1;
    if ((_mm_movemask_epi8(_mm_cmpeq_epi8(up, spread(corner_))) & all) != all) return false;
    store_part<size>(out_ + first, spread(left_));
    return true;
  }

 private:
  template <std::size_t size>
  static __m128i load_part(const std::uint8_t* from) noexcept {
    if constexpr (size == block) return load(from);
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }
  template <std::size_t size>
  static void store_part(std::uint8_t* to, __m128i value) noexcept {
    if constexpr (size == block) {
      store(to, value);
    } else {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), value);
    }
  }
  /// A pixel repeated.
  static __m128i spread(const std::uint8_t* pixel) noexcept {
    if constexpr (pixel_bytes == 1) return _mm_set1_epi8(static_cast<char>(pixel[0]));
    std::int16_t both = 0;
    std::memcpy(&both, pixel, pixel_bytes);
    return _mm_set1_epi16(both);
  }

  const std::uint8_t* in_;
  const std::uint8_t* above_;
  std::uint8_t* out_;
  std::uint8_t left_[pixel_bytes]{};
  std::uint8_t corner_[pixel_bytes]{};
};

template <std::size_t pixel_bytes>
void paeth_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
               std::size_t n) noexcept {
  PaethRow<pixel_bytes> row(in, above, out);
  std::size_t i = 0;
  for (; i + block <= n; i += block) {
    if (row.template copy<block>(i)) continue;
    for (const std::size_t part : {i, i + block / 2}) {
      if (!row.template copy<block / 2>(part)) row.walk(part, part + block / 2);
    }
  }
  row.walk(i, n);
}

}  // namespace

const RowFilters sse41_filters1{none_row, sub_row<1>, up_row, average_row<1>, paeth_row<1>};
const RowFilters sse41_filters2{none_row, sub_row<2>, up_row, average_row<2>, paeth_row<2>};

}  // namespace fastio

#endif
