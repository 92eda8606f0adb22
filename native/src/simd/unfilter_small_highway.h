// PNG's row filters for 1- and 2-byte pixels (masks and greys) in vectors of 128 bits: one source
// for all instruction sets, included by one file for each.
//
// Such pixels are too small for lanes of their own. Sub is a running sum, which takes four steps
// for 16 bytes; Paeth copies 8 or 16 bytes of the row above or of one pixel where that is what it
// says, which is most of a mask, and goes byte by byte elsewhere.
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "unfilter_highway.h"

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
