// Mirrored rows in vectors of 128 bits, 16 bytes a step, the pixels of a step turned round by one
// shuffle: one source for all instruction sets, included by one file for each.
#include <cstddef>
#include <cstdint>

#include "simd/highway.h"
#include "transform/rows.h"

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::Full128<std::uint8_t> bytes_tag;
using VecBytes = hn::Vec<decltype(bytes_tag)>;

/// Rows in steps of `step` pixels. `turn` turns bytes [lead, 16) of what is loaded, so that no
/// step reads behind the row; the last one, which begins with the row, those from byte 0 on. It
/// overlaps the one before, where the steps do not add up, and writes no byte behind the row.
template <std::size_t channels, std::size_t step>
class Mirror {
 public:
  HWY_INLINE explicit Mirror(const std::uint8_t (&turn)[16]) noexcept
      : turn_(hn::Load(bytes_tag, turn)),
        last_turn_(hn::SaturatedSub(turn_, hn::Set(bytes_tag, std::uint8_t{lead}))) {}

  HWY_INLINE void rows(const PixelView& in, const PixelTarget& out, std::size_t pixels,
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

  HWY_INLINE void row(const std::uint8_t* in, std::uint8_t* out,
                      std::size_t pixels) const noexcept {
    const std::uint8_t* from = in + pixels * channels - 16;
    std::uint8_t* to = out;
    std::uint8_t* const last = out + (pixels - step) * channels;
    for (; to < last; from -= bytes, to += bytes) {
      hn::StoreU(hn::TableLookupBytes(hn::LoadU(bytes_tag, from), turn_), bytes_tag, to);
    }
    const VecBytes turned = hn::TableLookupBytes(hn::LoadU(bytes_tag, in), last_turn_);
    if constexpr (lead == 0) {
      hn::StoreU(turned, bytes_tag, last);
    } else {
      static_assert(bytes == 15);
      const hn::Half<decltype(bytes_tag)> half;
      hn::StoreU(hn::LowerHalf(half, turned), half, last);
      hn::StoreU(hn::LowerHalf(half, hn::ShiftRightBytes<7>(bytes_tag, turned)), half, last + 7);
    }
  }

  VecBytes turn_;
  VecBytes last_turn_;
};

void mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
             std::size_t rows) noexcept {
  alignas(16) constexpr std::uint8_t turn[16] = {15, 14, 13, 12, 11, 10, 9, 8,
                                                 7,  6,  5,  4,  3,  2,  1, 0};
  Mirror<1, 16>(turn).rows(in, out, pixels, rows);
}

void mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
             std::size_t rows) noexcept {
  alignas(16) constexpr std::uint8_t turn[16] = {13, 14, 15, 10, 11, 12, 7, 8,
                                                 9,  4,  5,  6,  1,  2,  3, 0};
  Mirror<3, 5>(turn).rows(in, out, pixels, rows);
}

void mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
             std::size_t rows) noexcept {
  alignas(16) constexpr std::uint8_t turn[16] = {12, 13, 14, 15, 8, 9, 10, 11,
                                                 4,  5,  6,  7,  0, 1, 2,  3};
  Mirror<4, 4>(turn).rows(in, out, pixels, rows);
}

}  // namespace
}  // namespace fastio
HWY_AFTER_NAMESPACE();
