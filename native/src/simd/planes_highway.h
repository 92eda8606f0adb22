// Rows taken apart, mirrored or not, and put together, in vectors of 128 bits: one source for all
// instruction sets, included by one file for each.
#include "simd/highway.h"
#include "transform/rows.h"

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::Full128<std::uint8_t> bytes_tag;
constexpr hn::Full64<std::uint8_t> half_tag;
constexpr hn::Full128<std::uint32_t> words_tag;
constexpr hn::Full128<std::uint64_t> pairs_tag;
using VecBytes = hn::Vec<decltype(bytes_tag)>;
using VecWords = hn::Vec<decltype(words_tag)>;
using VecPairs = hn::Vec<decltype(pairs_tag)>;
constexpr std::size_t step = 16;  // pixels

/// The values of one channel, the last one first where they are mirrored.
template <bool mirrored, class Tag>
HWY_INLINE void store(Tag tag, hn::Vec<Tag> values, std::uint8_t* out) noexcept {
  if constexpr (mirrored) {
    alignas(16) constexpr std::uint8_t turn[16] = {15, 14, 13, 12, 11, 10, 9, 8,
                                                   7,  6,  5,  4,  3,  2,  1, 0};
    values = hn::TableLookupBytes(values, hn::Load(tag, turn + 16 - hn::Lanes(tag)));
  }
  hn::StoreU(values, tag, out);
}

/// As many pixels as the tag has lanes.
template <bool mirrored, class Tag>
HWY_INLINE void split_step3(Tag tag, const std::uint8_t* in, std::uint8_t* out,
                            std::size_t plane) noexcept {
  hn::Vec<Tag> red, green, blue;
  hn::LoadInterleaved3(tag, in, red, green, blue);
  store<mirrored>(tag, red, out);
  store<mirrored>(tag, green, out + plane);
  store<mirrored>(tag, blue, out + 2 * plane);
}

/// 4 pixels, the 4 values of each channel side by side.
HWY_INLINE VecWords load_together(const std::uint8_t* in) noexcept {
  alignas(16) constexpr std::uint8_t together[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                     2, 6, 10, 14, 3, 7, 11, 15};
  return hn::BitCast(words_tag,
                     hn::TableLookupBytes(hn::LoadU(bytes_tag, in), hn::Load(bytes_tag, together)));
}

/// The lower or upper words of two vectors, in pairs.
HWY_INLINE VecPairs lower(VecWords a, VecWords b) noexcept {
  return hn::BitCast(pairs_tag, hn::InterleaveLower(words_tag, a, b));
}
HWY_INLINE VecPairs upper(VecWords a, VecWords b) noexcept {
  return hn::BitCast(pairs_tag, hn::InterleaveUpper(words_tag, a, b));
}

template <bool mirrored>
HWY_INLINE void store(VecPairs values, std::uint8_t* out) noexcept {
  store<mirrored>(bytes_tag, hn::BitCast(bytes_tag, values), out);
}

/// LoadInterleaved4 takes more steps on x86.
template <bool mirrored>
HWY_INLINE void split_step4(const std::uint8_t* in, std::uint8_t* out, std::size_t plane) noexcept {
  const VecWords a = load_together(in);
  const VecWords b = load_together(in + 16);
  const VecWords c = load_together(in + 32);
  const VecWords d = load_together(in + 48);
  store<mirrored>(hn::InterleaveLower(pairs_tag, lower(a, b), lower(c, d)), out);
  store<mirrored>(hn::InterleaveUpper(pairs_tag, lower(a, b), lower(c, d)), out + plane);
  store<mirrored>(hn::InterleaveLower(pairs_tag, upper(a, b), upper(c, d)), out + 2 * plane);
  store<mirrored>(hn::InterleaveUpper(pairs_tag, upper(a, b), upper(c, d)), out + 3 * plane);
}

template <std::size_t channels, bool mirrored>
HWY_INLINE void split_row(const std::uint8_t* from, std::uint8_t* to, std::size_t plane,
                          std::size_t pixels) noexcept {
  const auto place = [&](std::size_t first, std::size_t count) {
    return to + (mirrored ? pixels - count - first : first);
  };
  const auto split_step = [&](std::size_t first) {
    if constexpr (channels == 3) {
      split_step3<mirrored>(bytes_tag, from + first * channels, place(first, step), plane);
    } else {
      split_step4<mirrored>(from + first * channels, place(first, step), plane);
    }
  };
  const auto split_half = [&](std::size_t first) {
    split_step3<mirrored>(half_tag, from + first * channels, place(first, step / 2), plane);
  };
  std::size_t done = 0;
  for (; done + step <= pixels; done += step) split_step(done);
  if (done == pixels) return;
  if (pixels > step) {  // the last step overlaps the one before
    split_step(pixels - step);
  } else if (channels == 3 && pixels >= step / 2) {  // rows of small patches
    split_half(0);
    split_half(pixels - step / 2);
  } else {
    split_pixels<channels>(from, to, plane, pixels, mirrored);
  }
}

template <std::size_t channels, bool mirrored>
void split(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
           std::size_t rows) noexcept {
  std::size_t y = 0;
  if constexpr (channels == 3 && !mirrored) {
    // Rows of small patches: what a step reads and writes behind one belongs to the next, which is
    // written after it.
    const bool overflows = pixels < step && pixels >= step / 2 && out.stride == pixels;
    for (; overflows && y + 1 < rows; ++y) {
      split_step3<mirrored>(bytes_tag, in.data + y * in.stride, out.data + y * out.stride,
                            out.plane);
    }
  }
  for (; y < rows; ++y) {
    split_row<channels, mirrored>(in.data + y * in.stride, out.data + y * out.stride, out.plane,
                                  pixels);
  }
}

/// The routine for rows that are mirrored or not.
template <std::size_t channels>
void split(const PixelView& in, const PlanesTarget& out, std::size_t pixels, std::size_t rows,
           bool mirrored) noexcept {
  (mirrored ? split<channels, true> : split<channels, false>)(in, out, pixels, rows);
}

template <std::size_t channels>
void join(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
          std::size_t rows) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    const std::uint8_t* from = in.data + y * in.stride;
    std::uint8_t* to = out.data + y * out.stride;
    std::size_t done = 0;
    for (; done + step <= pixels; done += step) {
      const VecBytes red = hn::LoadU(bytes_tag, from + done);
      const VecBytes green = hn::LoadU(bytes_tag, from + in.plane + done);
      const VecBytes blue = hn::LoadU(bytes_tag, from + 2 * in.plane + done);
      if constexpr (channels == 3) {
        hn::StoreInterleaved3(red, green, blue, bytes_tag, to + done * channels);
      } else {
        const VecBytes alpha = hn::LoadU(bytes_tag, from + 3 * in.plane + done);
        hn::StoreInterleaved4(red, green, blue, alpha, bytes_tag, to + done * channels);
      }
    }
    join_pixels<channels>(from, in.plane, to, done, pixels);
  }
}

}  // namespace
}  // namespace fastio
HWY_AFTER_NAMESPACE();
