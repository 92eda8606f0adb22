// The passes of resampling in vectors, equal to the scalar ones to the bit: one source for all
// instruction sets, included by one file for each.
//
// A weight of 22 bits does not fit multiplications of 16 bits, which are the fast ones. Hence it
// comes in two halves (TapPair), each pair of taps is multiplied twice, and the two exact sums are
// put together at the end.
#include <algorithm>
#include <cstring>
#include <utility>

#include "simd/highway.h"
#include "transform/resize.h"

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<std::uint8_t> bytes_tag;
constexpr hn::ScalableTag<std::int16_t> values_tag;
constexpr hn::ScalableTag<std::int32_t> sums_tag;
constexpr hn::Full128<std::uint8_t> row_tag;
using VecBytes = hn::Vec<decltype(bytes_tag)>;
using VecValues = hn::Vec<decltype(values_tag)>;
using VecSums = hn::Vec<decltype(sums_tag)>;

using Row = hn::Vec<decltype(row_tag)>;

constexpr std::size_t block = hn::MaxLanes(bytes_tag);  // bytes of a vector
constexpr std::size_t rows_together = block / 16;       // resampled together, 128 bits of each

// ------------------------------------- what Highway has no word for, or a slow one

/// Vectors of 128 bits as one.
HWY_INLINE VecBytes joined(const Row (&rows)[rows_together]) noexcept {
#if HWY_TARGET == HWY_AVX3
  __m512i all = _mm512_inserti32x4(_mm512_castsi128_si512(rows[0].raw), rows[1].raw, 1);
  all = _mm512_inserti32x4(all, rows[2].raw, 2);
  return VecBytes{_mm512_inserti32x4(all, rows[3].raw, 3)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(bytes_tag, rows[1], rows[0]);
#else
  return rows[0];
#endif
}

/// The opposite.
template <std::size_t row>
HWY_INLINE Row row_of(VecBytes all) noexcept {
#if HWY_TARGET == HWY_AVX3
  return Row{_mm512_extracti32x4_epi32(all.raw, row)};
#elif HWY_TARGET == HWY_AVX2
  return Row{_mm256_extracti128_si256(all.raw, row)};
#else
  return all;
#endif
}

/// Clips two times as many values as a vector has to bytes, 128 bits by 128 bits.
HWY_INLINE VecBytes clipped(VecValues a, VecValues b) noexcept {
#if HWY_TARGET == HWY_AVX3
  return VecBytes{_mm512_packus_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VecBytes{_mm256_packus_epi16(a.raw, b.raw)};
#else
  const hn::Half<decltype(bytes_tag)> half;
  return hn::Combine(bytes_tag, hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

/// Sums of products. Those of a pair of values are added up at once on x86; elsewhere the second
/// vector sums up the products of the upper half, and the pairs are added up at the end.
struct PairSums {
  VecSums first;
  VecSums second;

  HWY_INLINE void add(VecValues values, VecValues weights) noexcept {
#if HWY_TARGET == HWY_AVX3
    first = VecSums{_mm512_dpwssd_epi32(first.raw, values.raw, weights.raw)};
#else
    first = hn::ReorderWidenMulAccumulate(sums_tag, values, weights, first, second);
#endif
  }
  [[nodiscard]] HWY_INLINE VecSums sums() const noexcept {
    return hn::RearrangeToOddPlusEven(first, second);
  }
};

/// Sums that begin with `value`, an even number.
HWY_INLINE PairSums sums_from(std::int32_t value) noexcept {
#if HWY_ARCH_X86
  return {hn::Set(sums_tag, value), hn::Zero(sums_tag)};
#else
  return {hn::Set(sums_tag, value / 2), hn::Set(sums_tag, value / 2)};
#endif
}

// ---------------------------------------------------------------------- weights

/// Both halves of a pair, each in all lanes.
struct Weights {
  VecValues high;
  VecValues low;

  HWY_INLINE explicit Weights(const TapPair& pair) noexcept {
    std::int32_t halves[2];
    static_assert(sizeof(halves) == sizeof(pair));
    std::memcpy(halves, &pair, sizeof(pair));
    high = hn::BitCast(values_tag, hn::Set(sums_tag, halves[0]));
    low = hn::BitCast(values_tag, hn::Set(sums_tag, halves[1]));
  }
};

/// Sums by the two halves of the weights; `low` begins with what rounds.
struct Sums {
  PairSums high;
  PairSums low;

  HWY_INLINE Sums() noexcept : high(sums_from(0)), low(sums_from(1 << (Taps::precision - 1))) {}

  HWY_INLINE void add(VecValues values, const Weights& weights) noexcept {
    high.add(values, weights.high);
    low.add(values, weights.low);
  }
  /// The sums as 32-bit pixels, not yet clipped.
  [[nodiscard]] HWY_INLINE VecSums pixels() const noexcept {
    const VecSums sum = hn::Add(hn::ShiftLeft<Taps::half_bits>(high.sums()), low.sums());
    return hn::ShiftRight<Taps::precision>(sum);
  }
};

/// Clips four times as many values as a vector has to bytes, 128 bits by 128 bits.
HWY_INLINE VecBytes to_bytes(VecSums a, VecSums b, VecSums c, VecSums d) noexcept {
  return clipped(hn::ReorderDemote2To(values_tag, a, b), hn::ReorderDemote2To(values_tag, c, d));
}

// ------------------------------------------------------------------- horizontal

struct Rows {
  const std::uint8_t* from[rows_together];
  std::uint8_t* to[rows_together];
};

/// The shuffles that bring each channel of the pixels 2p and 2p + 1 side by side as 16-bit values,
/// for p = 0 and 1 of 16 bytes, and the one that drops a fourth channel that is not there.
template <int channels>
struct Shuffles {
  VecBytes first;
  VecBytes second;
  Row compact;

  HWY_INLINE Shuffles() noexcept {
    constexpr std::uint8_t no = 0x80;  // becomes 0
    if constexpr (channels == 3) {
      alignas(16) constexpr std::uint8_t places[3][16] = {
          {0, no, 3, no, 1, no, 4, no, 2, no, 5, no, no, no, no, no},
          {6, no, 9, no, 7, no, 10, no, 8, no, 11, no, no, no, no, no},
          {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, no, no, no, no}};
      set(places);
    } else {
      alignas(16) constexpr std::uint8_t places[3][16] = {
          {0, no, 4, no, 1, no, 5, no, 2, no, 6, no, 3, no, 7, no},
          {8, no, 12, no, 9, no, 13, no, 10, no, 14, no, 11, no, 15, no},
          {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
      set(places);
    }
  }

 private:
  HWY_INLINE void set(const std::uint8_t (&places)[3][16]) noexcept {
    first = hn::LoadDup128(bytes_tag, places[0]);
    second = hn::LoadDup128(bytes_tag, places[1]);
    compact = hn::Load(row_tag, places[2]);
  }
};

/// 16 bytes of each row.
HWY_INLINE VecBytes load(const Rows& rows, std::size_t at) noexcept {
  Row bytes[rows_together];
  for (std::size_t k = 0; k < rows_together; ++k) bytes[k] = hn::LoadU(row_tag, rows.from[k] + at);
  return joined(bytes);
}

HWY_INLINE VecValues shuffled(VecBytes bytes, VecBytes places) noexcept {
  return hn::BitCast(values_tag, hn::TableLookupBytesOr0(bytes, places));
}

/// One pixel of all rows, one channel in 32 bits, from `count` pairs of taps that begin at byte
/// `offset`. Reads up to 16 bytes behind the last pair.
template <int channels>
HWY_INLINE VecSums pixel(const TapPair* pairs, std::size_t count, std::size_t offset,
                         const Rows& rows, const Shuffles<channels>& shuffles) noexcept {
  Sums sums;
  std::size_t j = 0;
  for (; j + 2 <= count; j += 2) {
    const VecBytes bytes = load(rows, offset + 2 * j * channels);
    sums.add(shuffled(bytes, shuffles.first), Weights(pairs[j]));
    sums.add(shuffled(bytes, shuffles.second), Weights(pairs[j + 1]));
  }
  if (j < count) {
    const VecBytes bytes = load(rows, offset + 2 * j * channels);
    sums.add(shuffled(bytes, shuffles.first), Weights(pairs[j]));
  }
  return sums.pixels();
}

/// Four pixels of one row.
template <int channels>
HWY_INLINE void store(Row four_pixels, const Shuffles<channels>& shuffles,
                      std::uint8_t* out) noexcept {
  const Row bytes = hn::TableLookupBytesOr0(four_pixels, shuffles.compact);
  if constexpr (channels == 4) {
    hn::StoreU(bytes, row_tag, out);
  } else {
    const hn::Half<decltype(row_tag)> half;
    hn::StoreU(hn::LowerHalf(half, bytes), half, out);
    const std::uint32_t rest = hn::ExtractLane(hn::BitCast(hn::Full128<std::uint32_t>(), bytes), 2);
    std::memcpy(out + 8, &rest, sizeof(rest));
  }
}

/// Four pixels of each row from byte `at` on.
template <int channels, std::size_t... k>
HWY_INLINE void store_all(VecBytes bytes, const Shuffles<channels>& shuffles, const Rows& rows,
                          std::size_t at, std::index_sequence<k...>) noexcept {
  (store(row_of<k>(bytes), shuffles, rows.to[k] + at), ...);
}

/// `pair_count` is a constant where this is inlined: the loops over it disappear.
template <int channels>
HWY_INLINE void resample_rows(const Taps& taps, std::size_t pair_count, const Rows& rows) noexcept {
  const Shuffles<channels> shuffles;
  const std::size_t count = taps.count();
  const std::size_t low = taps.low();
  const TapPair* pairs = taps.pairs(0);
  const std::uint32_t* starts = taps.pair_starts();
  const auto at = [&](std::size_t i) HWY_ATTR {
    return pixel<channels>(pairs + i * pair_count, pair_count, (starts[i] - low) * channels, rows,
                           shuffles);
  };
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const VecBytes bytes = to_bytes(at(i), at(i + 1), at(i + 2), at(i + 3));
    store_all(bytes, shuffles, rows, i * channels, std::make_index_sequence<rows_together>());
  }
  for (; i < count; ++i) {
    const VecSums value = at(i);
    alignas(block) std::uint8_t bytes[block];
    hn::Store(to_bytes(value, value, value, value), bytes_tag, bytes);
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
    switch (taps.pair_count()) {
      case 1: resample_rows<channels>(taps, 1, together); break;
      case 2: resample_rows<channels>(taps, 2, together); break;
      case 3: resample_rows<channels>(taps, 3, together); break;
      case 4: resample_rows<channels>(taps, 4, together); break;
      default: resample_rows<channels>(taps, taps.pair_count(), together); break;
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

/// The rows that one output row is made of.
struct Column {
  const TapPair* pairs;
  std::size_t pair_count;
  const std::uint8_t* first;
  const std::uint8_t* last;  ///< no row behind it is read
  std::size_t stride;
};

HWY_INLINE VecValues low_values(VecBytes bytes) noexcept {
  return hn::BitCast(values_tag, hn::InterleaveLower(bytes_tag, bytes, hn::Zero(bytes_tag)));
}

HWY_INLINE VecValues high_values(VecBytes bytes) noexcept {
  return hn::BitCast(values_tag, hn::InterleaveUpper(bytes_tag, bytes, hn::Zero(bytes_tag)));
}

/// As many bytes of one output row as a vector has, from byte x on.
HWY_INLINE VecBytes vertical_block(const Column& column, std::size_t x) noexcept {
  const std::uint8_t* row = column.first + x;
  Sums sums[4];
  for (std::size_t j = 0; j < column.pair_count; ++j) {
    const std::uint8_t* below = std::min(row + column.stride, column.last + x);
    const VecBytes a = hn::LoadU(bytes_tag, row);
    const VecBytes b = hn::LoadU(bytes_tag, below);
    const VecBytes front = hn::InterleaveLower(bytes_tag, a, b);
    const VecBytes back = hn::InterleaveUpper(bytes_tag, a, b);
    const Weights weights(column.pairs[j]);
    sums[0].add(low_values(front), weights);
    sums[1].add(high_values(front), weights);
    sums[2].add(low_values(back), weights);
    sums[3].add(high_values(back), weights);
    row += 2 * column.stride;
  }
  return to_bytes(sums[0].pixels(), sums[1].pixels(), sums[2].pixels(), sums[3].pixels());
}

void vertical(const Taps& taps, std::size_t bytes, const PixelView& in,
              const PixelTarget& out) noexcept {
  const std::uint8_t* last = in.data + (taps.high() - taps.low() - 1) * in.stride;
  for (std::size_t i = 0; i < taps.count(); ++i) {
    const std::size_t first = (taps.pair_starts()[i] - taps.low()) * in.stride;
    const Column column{taps.pairs(i), taps.pair_count(), in.data + first, last, in.stride};
    std::uint8_t* row = out.data + i * out.stride;
    if (bytes < block) {
      alignas(block) std::uint8_t whole[block];
      hn::Store(vertical_block(column, 0), bytes_tag, whole);
      std::memcpy(row, whole, bytes);
      continue;
    }
    std::size_t x = 0;
    for (; x + block <= bytes; x += block) {
      hn::StoreU(vertical_block(column, x), bytes_tag, row + x);
    }
    // What is left is computed together with what lies before it.
    if (x < bytes) {
      hn::StoreU(vertical_block(column, bytes - block), bytes_tag, row + bytes - block);
    }
  }
}

}  // namespace
}  // namespace fastio
HWY_AFTER_NAMESPACE();
