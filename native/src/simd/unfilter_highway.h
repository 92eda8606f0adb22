// PNG's row filters for 3- and 4-byte pixels in vectors of 128 bits, and those for pixels of any
// size: one source for all instruction sets, included by one file for each.
//
// Sub, Average and Paeth depend on the pixel to the left, so one pixel is one step and its
// channels are the lanes; what counts is the latency of a step.
#include <cstring>

#include "../unfilter_rows.h"
#include "highway.h"

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
