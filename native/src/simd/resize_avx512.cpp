// The passes of resampling in AVX-512, equal to the scalar ones to the bit.
//
// VNNI adds up four products of a pixel and a signed byte at once. Hence a weight comes in three
// such digits (TapQuad), which are multiplied one by one; their exact sums are put together at
// the end. Nothing here runs before the dispatcher has asked the processor.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "../resize_passes.h"

namespace fastio {
namespace {

constexpr std::size_t quad = 4;  // taps

/// The three digits of a quad, each in all lanes.
struct Weights {
  __m512i digits[3];

  explicit Weights(const TapQuad& taps) noexcept {
    for (int k = 0; k < 3; ++k) {
      std::int32_t four;
      static_assert(sizeof(four) == sizeof(taps.digits[k]));
      std::memcpy(&four, taps.digits[k], sizeof(four));
      digits[k] = _mm512_set1_epi32(four);
    }
  }
};

/// Sums of 16 values by the digits of the weights; the lowest begins with what rounds.
struct Sums {
  __m512i digits[3] = {_mm512_set1_epi32(1 << (Taps::precision - 1)), _mm512_setzero_si512(),
                       _mm512_setzero_si512()};

  /// Four values of one byte in each lane.
  void add(__m512i values, const Weights& weights) noexcept {
    for (int k = 0; k < 3; ++k) {
      digits[k] = _mm512_dpbusd_epi32(digits[k], values, weights.digits[k]);
    }
  }
  /// The sums as 32-bit pixels, not yet clipped.
  [[nodiscard]] __m512i pixels() const noexcept {
    const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(digits[2], 8), digits[1]);
    const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(upper, 8), digits[0]);
    return _mm512_srai_epi32(sum, Taps::precision);
  }
};

/// Clips four times 16 values to bytes, lane of 128 bits by lane.
__m512i to_bytes(__m512i a, __m512i b, __m512i c, __m512i d) noexcept {
  return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

// ------------------------------------------------------------------- horizontal

constexpr std::size_t rows_together = 4;  // one in each lane of 128 bits

struct Rows {
  const std::uint8_t* from[rows_together];
  std::uint8_t* to[rows_together];
};

/// The shuffle that brings each channel of four pixels side by side, and the one that drops a
/// fourth channel that is not there.
template <int channels>
struct Shuffles {
  __m512i together;
  __m512i compact;

  Shuffles() noexcept {
    const char no = -1;
    if constexpr (channels == 3) {
      together = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, no, no, no, no));
      compact = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, no, no, no, no));
    } else {
      together = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
      compact = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    }
  }
};

/// 16 bytes of each row.
__m512i load(const Rows& rows, std::size_t at) noexcept {
  const auto row = [&](std::size_t k) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.from[k] + at));
  };
  __m512i bytes = _mm512_castsi128_si512(row(0));
  bytes = _mm512_inserti32x4(bytes, row(1), 1);
  bytes = _mm512_inserti32x4(bytes, row(2), 2);
  return _mm512_inserti32x4(bytes, row(3), 3);
}

/// One pixel of all rows, one channel in 32 bits, from `count` quads of taps that begin at byte
/// `offset`. Reads up to 16 bytes behind the last quad.
template <int channels>
[[gnu::always_inline]] inline __m512i pixel(const TapQuad* quads, std::size_t count,
                                            std::size_t offset, const Rows& rows,
                                            const Shuffles<channels>& shuffles) noexcept {
  Sums sums;
  for (std::size_t j = 0; j < count; ++j) {
    const __m512i bytes = load(rows, offset + j * quad * channels);
    sums.add(_mm512_shuffle_epi8(bytes, shuffles.together), Weights(quads[j]));
  }
  return sums.pixels();
}

template <int channels>
[[gnu::always_inline]] inline void store_lane(__m128i bytes, std::uint8_t* out) noexcept {
  if constexpr (channels == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
    const int rest = _mm_extract_epi32(bytes, 2);
    std::memcpy(out + 8, &rest, 4);
  }
}

/// `quad_count` is a constant where this is inlined: the loops over it disappear.
template <int channels>
[[gnu::always_inline]] inline void resample_rows(const Taps& taps, std::size_t quad_count,
                                                 const Rows& rows) noexcept {
  const Shuffles<channels> shuffles;
  const std::size_t count = taps.count();
  const std::size_t low = taps.low();
  const TapQuad* quads = taps.quads(0);
  const std::uint32_t* starts = taps.group_starts();
  const auto at = [&](std::size_t i) noexcept {
    return pixel<channels>(quads + i * quad_count, quad_count, (starts[i] - low) * channels, rows,
                           shuffles);
  };
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m512i bytes =
        _mm512_shuffle_epi8(to_bytes(at(i), at(i + 1), at(i + 2), at(i + 3)), shuffles.compact);
    store_lane<channels>(_mm512_castsi512_si128(bytes), rows.to[0] + i * channels);
    store_lane<channels>(_mm512_extracti32x4_epi32(bytes, 1), rows.to[1] + i * channels);
    store_lane<channels>(_mm512_extracti32x4_epi32(bytes, 2), rows.to[2] + i * channels);
    store_lane<channels>(_mm512_extracti32x4_epi32(bytes, 3), rows.to[3] + i * channels);
  }
  for (; i < count; ++i) {
    const __m512i value = at(i);
    alignas(64) std::uint8_t bytes[64];
    _mm512_store_si512(bytes, to_bytes(value, value, value, value));
    for (std::size_t k = 0; k < rows_together; ++k) {
      std::memcpy(rows.to[k] + i * channels, bytes + 16 * k, channels);
    }
  }
}

template <int channels>
void horizontal_rows(const Taps& taps, const PixelView& in, std::size_t rows,
                     const PixelTarget& out) noexcept {
  for (std::size_t y = 0; y < rows; y += rows_together) {
    Rows together;
    for (std::size_t k = 0; k < rows_together; ++k) {
      const std::size_t row = std::min(y + k, rows - 1);  // the last one again, where none is left
      together.from[k] = in.data + row * in.stride;
      together.to[k] = out.data + row * out.stride;
    }
    switch (taps.group_count()) {
      case 1: resample_rows<channels>(taps, 1, together); break;
      case 2: resample_rows<channels>(taps, 2, together); break;
      case 3: resample_rows<channels>(taps, 3, together); break;
      default: resample_rows<channels>(taps, taps.group_count(), together); break;
    }
  }
}

void horizontal(const Taps& taps, int channels, const PixelView& in, std::size_t rows,
                const PixelTarget& out) noexcept {
  switch (channels) {
    case 3: horizontal_rows<3>(taps, in, rows, out); break;
    case 4: horizontal_rows<4>(taps, in, rows, out); break;
    default: scalar_passes.horizontal(taps, channels, in, rows, out); break;
  }
}

// --------------------------------------------------------------------- vertical

constexpr std::size_t block = 64;  // bytes

/// The rows that one output row is made of.
struct Column {
  const TapQuad* quads;
  std::size_t quad_count;
  const std::uint8_t* first;
  const std::uint8_t* last;  ///< no row behind it is read
  std::size_t stride;
};

/// 64 bytes of one output row, from byte x on.
__m512i vertical_block(const Column& column, std::size_t x) noexcept {
  const std::uint8_t* row = column.first + x;
  const std::uint8_t* const last = column.last + x;
  const auto next = [&]() noexcept {
    const __m512i bytes = _mm512_loadu_si512(row);
    row = std::min(row + column.stride, last);
    return bytes;
  };
  Sums sums[4];
  for (std::size_t j = 0; j < column.quad_count; ++j) {
    const __m512i a = next();
    const __m512i b = next();
    const __m512i c = next();
    const __m512i d = next();
    const __m512i front_ab = _mm512_unpacklo_epi8(a, b);
    const __m512i front_cd = _mm512_unpacklo_epi8(c, d);
    const __m512i back_ab = _mm512_unpackhi_epi8(a, b);
    const __m512i back_cd = _mm512_unpackhi_epi8(c, d);
    const Weights weights(column.quads[j]);
    sums[0].add(_mm512_unpacklo_epi16(front_ab, front_cd), weights);
    sums[1].add(_mm512_unpackhi_epi16(front_ab, front_cd), weights);
    sums[2].add(_mm512_unpacklo_epi16(back_ab, back_cd), weights);
    sums[3].add(_mm512_unpackhi_epi16(back_ab, back_cd), weights);
  }
  return to_bytes(sums[0].pixels(), sums[1].pixels(), sums[2].pixels(), sums[3].pixels());
}

void vertical(const Taps& taps, std::size_t bytes, const PixelView& in,
              const PixelTarget& out) noexcept {
  const std::uint8_t* last = in.data + (taps.high() - taps.low() - 1) * in.stride;
  for (std::size_t i = 0; i < taps.count(); ++i) {
    const std::size_t first = (taps.group_starts()[i] - taps.low()) * in.stride;
    const Column column{taps.quads(i), taps.group_count(), in.data + first, last, in.stride};
    std::uint8_t* row = out.data + i * out.stride;
    if (bytes < block) {
      alignas(block) std::uint8_t whole[block];
      _mm512_store_si512(whole, vertical_block(column, 0));
      std::memcpy(row, whole, bytes);
      continue;
    }
    std::size_t x = 0;
    for (; x + block <= bytes; x += block) {
      _mm512_storeu_si512(row + x, vertical_block(column, x));
    }
    // What is left is computed together with what lies before it.
    if (x < bytes) {
      _mm512_storeu_si512(row + bytes - block, vertical_block(column, bytes - block));
    }
  }
}

}  // namespace

const ResizePasses avx512_passes{&Taps::pack_quads, horizontal, vertical};

}  // namespace fastio

#endif
