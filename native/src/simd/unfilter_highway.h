// PNG's row filters for 3- and 4-byte pixels in vectors of 128 bits, and those for pixels of any
// size: one source for all instruction sets, included by one file for each.
//
// Sub, Average and Paeth depend on the pixel to the left, so one pixel is one step and its
// channels are the lanes; what counts is the latency of a step.
#pragma once

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "png/unfilter.h"
#include "simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::Full128<std::uint8_t> bytes_tag;
using VecBytes = hn::Vec<decltype(bytes_tag)>;
constexpr std::size_t block = 16;

constexpr hn::CappedTag<std::uint8_t, 4> pixel_tag;  // of which a 3-byte pixel uses three
constexpr hn::CappedTag<std::int16_t, 4> wide_tag;
constexpr hn::Repartition<std::uint8_t, decltype(wide_tag)> wide_bytes_tag;
using Pixel = hn::Vec<decltype(pixel_tag)>;
using Wide = hn::Vec<decltype(wide_tag)>;

HWY_INLINE VecBytes load(const std::uint8_t* from) noexcept {
  return hn::LoadU(bytes_tag, from);
}

HWY_INLINE void store(std::uint8_t* to, VecBytes value) noexcept {
  hn::StoreU(value, bytes_tag, to);
}

void none_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
              std::size_t n) noexcept {
  std::memmove(out, in, n);
}

void up_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
            std::size_t n) noexcept {
  const std::size_t whole = n / block * block;
  std::size_t i = 0;
  for (; i < whole; i += block) store(out + i, hn::Add(load(in + i), load(above + i)));
  for (; i < n; ++i) out[i] = static_cast<std::uint8_t>(in[i] + above[i]);
}

// ------------------------------------------------------------- one pixel a step

HWY_INLINE Pixel load_pixel(const std::uint8_t* from) noexcept {
  return hn::LoadU(pixel_tag, from);
}

HWY_INLINE Wide load_wide(const std::uint8_t* from) noexcept {
  return hn::PromoteTo(wide_tag, load_pixel(from));
}

template <std::size_t byte_count>
HWY_INLINE void store_pixel(std::uint8_t* to, Pixel pixel) noexcept {
  const std::uint32_t value = hn::GetLane(hn::BitCast(hn::CappedTag<std::uint32_t, 1>(), pixel));
  std::memcpy(to, &value, byte_count);
}

/// Runs `step(i)`, which gives the pixel at byte i, over a row. All but the last pixel are
/// written as 4 bytes (the fourth is overwritten by the next); the last one exactly.
template <std::size_t pixel_bytes, typename Step>
HWY_INLINE void each_pixel(std::uint8_t* out, std::size_t n, Step step) noexcept {
  std::size_t i = 0;
  for (; i + pixel_bytes < n; i += pixel_bytes) store_pixel<4>(out + i, step(i));
  store_pixel<pixel_bytes>(out + i, step(i));
}

template <std::size_t pixel_bytes>
void sub_pixels(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
                std::size_t n) noexcept {
  Pixel left = hn::Zero(pixel_tag);
  each_pixel<pixel_bytes>(out, n, [&](std::size_t i) HWY_ATTR {
    left = hn::Add(load_pixel(in + i), left);
    return left;
  });
}

template <std::size_t pixel_bytes>
void average_pixels(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
                    std::size_t n) noexcept {
  const Pixel one = hn::Set(pixel_tag, std::uint8_t{1});
  Pixel left = hn::Zero(pixel_tag);
  each_pixel<pixel_bytes>(out, n, [&](std::size_t i) HWY_ATTR {
    const Pixel up = load_pixel(above + i);
    // AverageRound rounds up; PNG rounds down.
    const Pixel odd = hn::And(hn::Xor(left, up), one);
    left = hn::Add(load_pixel(in + i), hn::Sub(hn::AverageRound(left, up), odd));
    return left;
  });
}

template <std::size_t pixel_bytes>
void paeth_pixels(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
                  std::size_t n) noexcept {
  Wide left = hn::Zero(wide_tag);    // values 0..255
  Wide corner = hn::Zero(wide_tag);  // likewise
  each_pixel<pixel_bytes>(out, n, [&](std::size_t i) HWY_ATTR {
    const Wide up = load_wide(above + i);
    const Wide up_corner = hn::Sub(up, corner);
    const Wide left_corner = hn::Sub(left, corner);
    const Wide to_left = hn::Abs(up_corner);
    const Wide to_up = hn::Abs(left_corner);
    const Wide to_corner = hn::Abs(hn::Add(up_corner, left_corner));
    const Wide least = hn::Min(to_corner, hn::Min(to_left, to_up));
    // Ties go to left, then up.
    const Wide up_or_corner = hn::IfThenElse(hn::Eq(least, to_up), up, corner);
    const Wide best = hn::IfThenElse(hn::Eq(least, to_left), left, up_or_corner);
    // In bytes, so that the sum wraps around at 256.
    left = hn::BitCast(wide_tag, hn::Add(hn::BitCast(wide_bytes_tag, load_wide(in + i)),
                                         hn::BitCast(wide_bytes_tag, best)));
    corner = up;
    return hn::DemoteTo(pixel_tag, left);
  });
}

}  // namespace
}  // namespace fastio
HWY_AFTER_NAMESPACE();

// PNG's row filters for 1- and 2-byte pixels (masks and greys) in vectors of 128 bits: one source
// for all instruction sets, included by one file for each.
//
// Such pixels are too small for lanes of their own. Sub is a running sum, which takes four steps
// for 16 bytes; Paeth copies 8 or 16 bytes of the row above or of one pixel where that is what it
// says, which is most of a mask, and goes byte by byte elsewhere.

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
/// The sum of each byte and those before it at the same place of their pixels.
template <std::size_t pixel_bytes>
HWY_INLINE VecBytes running_sums(VecBytes bytes) noexcept {
  if constexpr (pixel_bytes == 1) bytes = hn::Add(bytes, hn::ShiftLeftBytes<1>(bytes));
  bytes = hn::Add(bytes, hn::ShiftLeftBytes<2>(bytes));
  bytes = hn::Add(bytes, hn::ShiftLeftBytes<4>(bytes));
  return hn::Add(bytes, hn::ShiftLeftBytes<8>(bytes));
}

/// Its last pixel, over and over.
template <std::size_t pixel_bytes>
HWY_INLINE VecBytes last_pixel(VecBytes bytes) noexcept {
  if constexpr (pixel_bytes == 1) {
    return hn::TableLookupBytes(bytes, hn::Set(bytes_tag, std::uint8_t{15}));
  } else {
    const hn::Full128<std::uint16_t> pairs_tag;
    return hn::TableLookupBytes(
        bytes, hn::BitCast(bytes_tag, hn::Set(pairs_tag, std::uint16_t{15 << 8 | 14})));
  }
}

template <std::size_t pixel_bytes>
void sub_bytes(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
               std::size_t n) noexcept {
  VecBytes left = hn::Zero(bytes_tag);
  std::size_t i = 0;
  for (; i + block <= n; i += block) {
    const VecBytes row = hn::Add(running_sums<pixel_bytes>(load(in + i)), left);
    store(out + i, row);
    left = last_pixel<pixel_bytes>(row);
  }
  for (; i < n; ++i) {
    out[i] = static_cast<std::uint8_t>(in[i] + (i < pixel_bytes ? 0 : out[i - pixel_bytes]));
  }
}

template <std::size_t pixel_bytes>
void average_bytes(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
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
  HWY_ATTR bool copy(std::size_t first) noexcept {
    const hn::CappedTag<std::uint8_t, size> part_tag;
    const auto up = hn::LoadU(part_tag, above_ + first);
    if (!all_equal(part_tag, hn::LoadU(part_tag, in_ + first), hn::Zero(part_tag))) return false;
    if (std::memcmp(left_, corner_, pixel_bytes) == 0) {
      hn::StoreU(up, part_tag, out_ + first);
      std::memcpy(left_, above_ + first + size - pixel_bytes, pixel_bytes);
      std::memcpy(corner_, left_, pixel_bytes);
      return true;
    }
    if (!all_equal(part_tag, up, spread(part_tag, corner_))) return false;
    hn::StoreU(spread(part_tag, left_), part_tag, out_ + first);
    return true;
  }

 private:
  template <typename Tag>
  static HWY_INLINE bool all_equal(Tag tag, hn::Vec<Tag> a, hn::Vec<Tag> b) noexcept {
    return hn::AllTrue(tag, hn::Eq(a, b));
  }
  /// A pixel repeated.
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> spread(Tag tag, const std::uint8_t* pixel) noexcept {
    if constexpr (pixel_bytes == 1) {
      return hn::Set(tag, pixel[0]);
    } else {
      std::uint16_t both = 0;
      std::memcpy(&both, pixel, pixel_bytes);
      return hn::BitCast(tag, hn::Set(hn::Repartition<std::uint16_t, Tag>(), both));
    }
  }

  const std::uint8_t* in_;
  const std::uint8_t* above_;
  std::uint8_t* out_;
  std::uint8_t left_[pixel_bytes]{};
  std::uint8_t corner_[pixel_bytes]{};
};

template <std::size_t pixel_bytes>
void paeth_bytes(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
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
}  // namespace fastio
HWY_AFTER_NAMESPACE();
