// The passes of resampling in AVX2, equal to the scalar ones to the bit.
//
// A weight of 22 bits does not fit the 16-bit multiplications that AVX2 is fast at. Hence it
// comes in two halves (TapPair), each pair of taps is multiplied twice, and the two exact sums
// are put together at the end. Compiled with -mavx2, so nothing here runs before the
// dispatcher has asked the processor.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "../resize_passes.h"

namespace fastio {
namespace {

/// Both halves of a pair, each in all lanes.
struct Weights {
  __m256i high;
  __m256i low;

  explicit Weights(const TapPair& pair) noexcept {
    std::int32_t halves[2];
    static_assert(sizeof(halves) == sizeof(pair));
    std::memcpy(halves, &pair, sizeof(pair));
    high = _mm256_set1_epi32(halves[0]);
    low = _mm256_set1_epi32(halves[1]);
  }
};

/// Sums of eight values by the two halves of the weights; `low` begins with what rounds.
struct Sums {
  __m256i high = _mm256_setzero_si256();
  __m256i low = _mm256_set1_epi32(1 << (Taps::precision - 1));

  void add(__m256i values, const Weights& weights) noexcept {
    high = _mm256_add_epi32(high, _mm256_madd_epi16(values, weights.high));
    low = _mm256_add_epi32(low, _mm256_madd_epi16(values, weights.low));
  }
  /// The sums as 32-bit pixels, not yet clipped.
  [[nodiscard]] __m256i pixels() const noexcept {
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, Taps::half_bits), low);
    return _mm256_srai_epi32(sum, Taps::precision);
  }
};

/// Clips four times eight values to bytes, lane by lane.
__m256i to_bytes(__m256i a, __m256i b, __m256i c, __m256i d) noexcept {
  return _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
}

// ------------------------------------------------------------------- horizontal

/// The shuffles that bring channel c of the pixels 2p and 2p + 1 side by side as 16-bit values,
/// for p = 0 and 1 of 16 bytes, and the one that drops a fourth channel that is not there.
template <int channels>
struct Shuffles {
  __m256i first;
  __m256i second;
  __m128i compact;

  Shuffles() noexcept {
    const char no = -1;
    if constexpr (channels == 3) {
      first = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(0, no, 3, no, 1, no, 4, no, 2, no, 5, no, no, no, no, no));
      second = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(6, no, 9, no, 7, no, 10, no, 8, no, 11, no, no, no, no, no));
      compact = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, no, no, no, no);
    } else {
      first = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(0, no, 4, no, 1, no, 5, no, 2, no, 6, no, 3, no, 7, no));
      second = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(8, no, 12, no, 9, no, 13, no, 10, no, 14, no, 11, no, 15, no));
      compact = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
  }
};

/// 16 bytes of each of two rows.
__m256i load_two(const std::uint8_t* upper, const std::uint8_t* lower) noexcept {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(upper));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/// Two rows that are resampled together, one in each lane.
struct TwoRows {
  const std::uint8_t* upper;
  const std::uint8_t* lower;
};

/// One pixel of both rows, one channel in 32 bits, from `pair_count` pairs of taps that begin at
/// byte `offset`. Reads up to 16 bytes behind the last pair.
template <int channels>
[[gnu::always_inline]] inline __m256i pixel(const TapPair* pairs, std::size_t pair_count,
                                            std::size_t offset, const TwoRows& rows,
                                            const Shuffles<channels>& shuffles) noexcept {
  const std::uint8_t* upper = rows.upper + offset;
  const std::uint8_t* lower = rows.lower + offset;
  Sums sums;
  std::size_t j = 0;
  for (; j + 2 <= pair_count; j += 2) {
    const __m256i bytes = load_two(upper + 2 * j * channels, lower + 2 * j * channels);
    sums.add(_mm256_shuffle_epi8(bytes, shuffles.first), Weights(pairs[j]));
    sums.add(_mm256_shuffle_epi8(bytes, shuffles.second), Weights(pairs[j + 1]));
  }
  if (j < pair_count) {
    const __m256i bytes = load_two(upper + 2 * j * channels, lower + 2 * j * channels);
    sums.add(_mm256_shuffle_epi8(bytes, shuffles.first), Weights(pairs[j]));
  }
  return sums.pixels();
}

template <int channels>
[[gnu::always_inline]] inline void store_lane(__m128i four_pixels, __m128i compact,
                                              std::uint8_t* out) noexcept {
  const __m128i bytes = _mm_shuffle_epi8(four_pixels, compact);
  if constexpr (channels == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
    const int rest = _mm_extract_epi32(bytes, 2);
    std::memcpy(out + 8, &rest, 4);
  }
}

/// `pair_count` is a constant where this is inlined: the loops over it disappear.
template <int channels>
[[gnu::always_inline]] inline void two_rows(const Taps& taps, std::size_t pair_count,
                                            const TwoRows& in, std::uint8_t* upper,
                                            std::uint8_t* lower) noexcept {
  const Shuffles<channels> shuffles;
  const std::size_t count = taps.count();
  const std::size_t low = taps.low();
  const TapPair* pairs = taps.pairs(0);
  const std::uint32_t* starts = taps.group_starts();
  const auto at = [&](std::size_t i) noexcept {
    return pixel<channels>(pairs + i * pair_count, pair_count, (starts[i] - low) * channels, in,
                           shuffles);
  };
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256i bytes = to_bytes(at(i), at(i + 1), at(i + 2), at(i + 3));
    store_lane<channels>(_mm256_castsi256_si128(bytes), shuffles.compact, upper + i * channels);
    store_lane<channels>(_mm256_extracti128_si256(bytes, 1), shuffles.compact,
                         lower + i * channels);
  }
  for (; i < count; ++i) {
    const __m256i value = at(i);
    const __m256i bytes = to_bytes(value, value, value, value);
    const int upper_pixel = _mm256_extract_epi32(bytes, 0);
    const int lower_pixel = _mm256_extract_epi32(bytes, 4);
    std::memcpy(upper + i * channels, &upper_pixel, channels);
    std::memcpy(lower + i * channels, &lower_pixel, channels);
  }
}

template <int channels>
void horizontal_rows(const Taps& taps, const PixelView& in, std::size_t rows,
                     const PixelTarget& out) noexcept {
  for (std::size_t y = 0; y < rows; y += 2) {
    const std::size_t below = std::min(y + 1, rows - 1);
    const TwoRows from{in.data + y * in.stride, in.data + below * in.stride};
    std::uint8_t* upper = out.data + y * out.stride;
    std::uint8_t* lower = out.data + below * out.stride;
    switch (taps.group_count()) {
      case 1: two_rows<channels>(taps, 1, from, upper, lower); break;
      case 2: two_rows<channels>(taps, 2, from, upper, lower); break;
      case 3: two_rows<channels>(taps, 3, from, upper, lower); break;
      case 4: two_rows<channels>(taps, 4, from, upper, lower); break;
      default: two_rows<channels>(taps, taps.group_count(), from, upper, lower); break;
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

constexpr std::size_t block = 32;  // bytes

/// The rows that one output row is made of.
struct Column {
  const TapPair* pairs;
  std::size_t pair_count;
  const std::uint8_t* first;
  const std::uint8_t* last;  ///< no row behind it is read
  std::size_t stride;
};

/// 32 bytes of one output row, from byte x on.
__m256i vertical_block(const Column& column, std::size_t x) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  const std::uint8_t* row = column.first + x;
  Sums sums[4];
  for (std::size_t j = 0; j < column.pair_count; ++j) {
    const std::uint8_t* below = std::min(row + column.stride, column.last + x);
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(below));
    const __m256i front = _mm256_unpacklo_epi8(a, b);
    const __m256i back = _mm256_unpackhi_epi8(a, b);
    const Weights weights(column.pairs[j]);
    sums[0].add(_mm256_unpacklo_epi8(front, zero), weights);
    sums[1].add(_mm256_unpackhi_epi8(front, zero), weights);
    sums[2].add(_mm256_unpacklo_epi8(back, zero), weights);
    sums[3].add(_mm256_unpackhi_epi8(back, zero), weights);
    row += 2 * column.stride;
  }
  return to_bytes(sums[0].pixels(), sums[1].pixels(), sums[2].pixels(), sums[3].pixels());
}

void store_block(std::uint8_t* out, __m256i bytes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
}

void vertical(const Taps& taps, std::size_t bytes, const PixelView& in,
              const PixelTarget& out) noexcept {
  const std::uint8_t* last = in.data + (taps.high() - taps.low() - 1) * in.stride;
  for (std::size_t i = 0; i < taps.count(); ++i) {
    const std::size_t first = (taps.group_starts()[i] - taps.low()) * in.stride;
    const Column column{taps.pairs(i), taps.group_count(), in.data + first, last, in.stride};
    std::uint8_t* row = out.data + i * out.stride;
    if (bytes < block) {
      std::uint8_t whole[block];
      store_block(whole, vertical_block(column, 0));
      std::memcpy(row, whole, bytes);
      continue;
    }
    std::size_t x = 0;
    for (; x + block <= bytes; x += block) store_block(row + x, vertical_block(column, x));
    // What is left is computed together with what lies before it.
    if (x < bytes) store_block(row + bytes - block, vertical_block(column, bytes - block));
  }
}

}  // namespace

const ResizePasses avx2_passes{&Taps::pack_pairs, horizontal, vertical};

}  // namespace fastio

#endif
