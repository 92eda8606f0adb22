// The loops of colours in vectors of floats: one source for all instruction sets, included by one
// file for each. Each value is computed as torch computes it, rounding by rounding.
#include "simd/highway.h"
#include "transform/colours.h"

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> floats_tag;
constexpr hn::RebindToSigned<decltype(floats_tag)> ints_tag;
constexpr hn::Rebind<std::uint8_t, decltype(floats_tag)> few_bytes_tag;
constexpr hn::Full128<std::uint8_t> pixels_tag;
using Floats = hn::Vec<decltype(floats_tag)>;
using Ints = hn::Vec<decltype(ints_tag)>;

constexpr std::size_t lanes = hn::MaxLanes(floats_tag);

/// a * b + c, rounded once. Highway has it only where it may use all of what AVX2 came with.
HWY_INLINE Floats fused(Floats a, Floats b, Floats c) noexcept {
#if HWY_TARGET == HWY_AVX3
  return Floats{_mm512_fmadd_ps(a.raw, b.raw, c.raw)};
#elif HWY_TARGET == HWY_AVX2
  return Floats{_mm256_fmadd_ps(a.raw, b.raw, c.raw)};
#else
  return hn::MulAdd(a, b, c);
#endif
}

HWY_INLINE Floats all(float value) noexcept {
  return hn::Set(floats_tag, value);
}

HWY_INLINE Floats load(const std::uint8_t* from) noexcept {
  return hn::ConvertTo(floats_tag, hn::PromoteTo(ints_tag, hn::LoadU(few_bytes_tag, from)));
}

HWY_INLINE void store_ints(Ints values, std::uint8_t* to) noexcept {
#if HWY_TARGET == HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(values.raw));
#else
  hn::StoreU(hn::DemoteTo(few_bytes_tag, values), few_bytes_tag, to);
#endif
}

/// Without the fraction. Values are between 0 and 255.
HWY_INLINE void store(Floats values, std::uint8_t* to) noexcept {
  store_ints(hn::ConvertTo(ints_tag, values), to);
}

HWY_INLINE Floats clipped(Floats values, float most) noexcept {
  return hn::Min(hn::Max(values, hn::Zero(floats_tag)), all(most));
}

std::size_t levels(std::uint8_t* values, std::size_t count, float factor, float constant,
                   float weight) noexcept {
  const Floats scale = all(factor);
  const Floats first = all(constant);
  const Floats second = all(weight);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Floats scaled = hn::Mul(load(values + i), scale);
    store(clipped(fused(first, second, scaled), 255), values + i);
  }
  return i;
}

std::size_t extremes(const std::uint8_t* values, std::size_t count, std::uint8_t* least,
                     std::uint8_t* most) noexcept {
  constexpr std::size_t together = ColourLoops::together;
  constexpr std::size_t step = hn::MaxLanes(pixels_tag);
  static_assert(together == 3 * step);
  auto least0 = hn::LoadU(pixels_tag, least);
  auto least1 = hn::LoadU(pixels_tag, least + step);
  auto least2 = hn::LoadU(pixels_tag, least + 2 * step);
  auto most0 = hn::LoadU(pixels_tag, most);
  auto most1 = hn::LoadU(pixels_tag, most + step);
  auto most2 = hn::LoadU(pixels_tag, most + 2 * step);
  std::size_t i = 0;
  for (; i + together <= count; i += together) {
    const auto values0 = hn::LoadU(pixels_tag, values + i);
    const auto values1 = hn::LoadU(pixels_tag, values + i + step);
    const auto values2 = hn::LoadU(pixels_tag, values + i + 2 * step);
    least0 = hn::Min(least0, values0);
    least1 = hn::Min(least1, values1);
    least2 = hn::Min(least2, values2);
    most0 = hn::Max(most0, values0);
    most1 = hn::Max(most1, values1);
    most2 = hn::Max(most2, values2);
  }
  hn::StoreU(least0, pixels_tag, least);
  hn::StoreU(least1, pixels_tag, least + step);
  hn::StoreU(least2, pixels_tag, least + 2 * step);
  hn::StoreU(most0, pixels_tag, most);
  hn::StoreU(most1, pixels_tag, most + step);
  hn::StoreU(most2, pixels_tag, most + 2 * step);
  return i;
}

std::size_t stretch(std::uint8_t* values, std::size_t count, const float* low,
                    const float* scale) noexcept {
  constexpr std::size_t together = ColourLoops::together;
  static_assert(together % lanes == 0);
  std::size_t i = 0;
  for (; i + together <= count; i += together) {
    for (std::size_t k = 0; k < together; k += lanes) {
      const Floats above = hn::Sub(load(values + i + k), hn::LoadU(floats_tag, low + k));
      store(clipped(hn::Div(above, hn::LoadU(floats_tag, scale + k)), 255), values + i + k);
    }
  }
  return i;
}

HWY_INLINE Floats luma_of(Floats red, Floats green, Floats blue) noexcept {
  const Floats two = fused(green, all(0.587F), hn::Mul(red, all(0.2989F)));
  return hn::Floor(fused(blue, all(0.114F), two));
}

void saturate(ColourPlanes& planes, float factor, float weight) noexcept {
  const Floats scale = all(factor);
  const Floats grey = all(weight);
  for (std::size_t i = 0; i < ColourPlanes::pixels; i += lanes) {
    const Floats red = load(planes.red + i);
    const Floats green = load(planes.green + i);
    const Floats blue = load(planes.blue + i);
    const Floats luma = luma_of(red, green, blue);
    store(clipped(fused(luma, grey, hn::Mul(red, scale)), 255), planes.red + i);
    store(clipped(fused(luma, grey, hn::Mul(green, scale)), 255), planes.green + i);
    store(clipped(fused(luma, grey, hn::Mul(blue, scale)), 255), planes.blue + i);
  }
}

void luma(ColourPlanes& planes) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; i += lanes) {
    store(luma_of(load(planes.red + i), load(planes.green + i), load(planes.blue + i)),
          planes.red + i);
  }
}

/// To hue, saturation and value and back, as torchvision does it: value, chroma and the place on
/// the circle, then the two channels that are neither highest nor fixed.
void turn_hue(ColourPlanes& planes, float turn) noexcept {
  const Floats one = all(1);
  const Floats unit = all(static_cast<float>(1.0 / 255.0));
  const Floats sixth = all(static_cast<float>(1.0 / 6.0));
  const Floats back = all(static_cast<float>(256.0 - 1e-3));
  for (std::size_t i = 0; i < ColourPlanes::pixels; i += lanes) {
    const Floats red = hn::Mul(load(planes.red + i), unit);
    const Floats green = hn::Mul(load(planes.green + i), unit);
    const Floats blue = hn::Mul(load(planes.blue + i), unit);
    const Floats most = hn::Max(hn::Max(red, green), blue);
    const Floats least = hn::Min(hn::Min(red, green), blue);
    const Floats range = hn::Sub(most, least);
    const auto is_grey = hn::Eq(most, least);
    const Floats saturation = hn::Div(range, hn::IfThenElse(is_grey, one, most));
    const Floats divisor = hn::IfThenElse(is_grey, one, range);
    const Floats below_red = hn::Div(hn::Sub(most, red), divisor);
    const Floats below_green = hn::Div(hn::Sub(most, green), divisor);
    const Floats below_blue = hn::Div(hn::Sub(most, blue), divisor);
    const Floats of_red = hn::Sub(below_blue, below_green);
    const Floats of_green = hn::Sub(hn::Add(below_red, all(2)), below_blue);
    const Floats of_blue = hn::Sub(hn::Add(below_green, all(4)), below_red);
    Floats hue = hn::IfThenElse(hn::Eq(most, red), of_red,
                                hn::IfThenElse(hn::Eq(most, green), of_green, of_blue));
    hue = hn::Add(hn::Mul(hue, sixth), one);
    hue = hn::Sub(hue, hn::Floor(hue));
    hue = hn::Add(hue, all(turn));
    hue = hn::Mul(hn::Sub(hue, hn::Floor(hue)), all(6));
    const Floats sector = hn::Floor(hue);
    const Floats part = hn::Mul(saturation, hn::Sub(hue, sector));
    const Floats rest = hn::Sub(one, saturation);
    const Floats falling = clipped(hn::Mul(hn::Sub(one, part), most), 1);
    const Floats rising = clipped(hn::Mul(hn::Add(part, rest), most), 1);
    const Floats low = clipped(hn::Mul(rest, most), 1);
    const auto is1 = hn::Eq(sector, one);
    const auto is2 = hn::Eq(sector, all(2));
    const auto is3 = hn::Eq(sector, all(3));
    const auto is4 = hn::Eq(sector, all(4));
    const auto is5 = hn::Eq(sector, all(5));
    // Sector 6 is 0: what is none of the others.
    Floats new_red = hn::IfThenElse(is1, falling, most);
    new_red = hn::IfThenElse(hn::Or(is2, is3), low, new_red);
    new_red = hn::IfThenElse(is4, rising, new_red);
    Floats new_green = hn::IfThenElse(hn::Or(is1, is2), most, rising);
    new_green = hn::IfThenElse(is3, falling, new_green);
    new_green = hn::IfThenElse(hn::Or(is4, is5), low, new_green);
    Floats new_blue = hn::IfThenElse(is2, rising, low);
    new_blue = hn::IfThenElse(hn::Or(is3, is4), most, new_blue);
    new_blue = hn::IfThenElse(is5, falling, new_blue);
    store(hn::Mul(new_red, back), planes.red + i);
    store(hn::Mul(new_green, back), planes.green + i);
    store(hn::Mul(new_blue, back), planes.blue + i);
  }
}

void split(const std::uint8_t* pixels, ColourPlanes& planes) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; i += 16) {
    hn::Vec<decltype(pixels_tag)> red, green, blue;
    hn::LoadInterleaved3(pixels_tag, pixels + 3 * i, red, green, blue);
    hn::Store(red, pixels_tag, planes.red + i);
    hn::Store(green, pixels_tag, planes.green + i);
    hn::Store(blue, pixels_tag, planes.blue + i);
  }
}

void join(const ColourPlanes& planes, std::uint8_t* pixels) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; i += 16) {
    hn::StoreInterleaved3(hn::Load(pixels_tag, planes.red + i),
                          hn::Load(pixels_tag, planes.green + i),
                          hn::Load(pixels_tag, planes.blue + i), pixels_tag, pixels + 3 * i);
  }
}

HWY_INLINE Ints load_ints(const std::uint8_t* from) noexcept {
  return hn::PromoteTo(ints_tag, hn::LoadU(few_bytes_tag, from));
}

std::size_t sharpen(const std::uint8_t* const (&rows)[3], std::size_t step, std::uint8_t* out,
                    std::size_t count, float weight) noexcept {
  const Floats share = all(weight);
  const Floats thirteenth = all(1.0F / 13.0F);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Ints sum = hn::Zero(ints_tag);
    for (const std::uint8_t* row : rows) {
      sum = hn::Add(sum, hn::Add(load_ints(row + i - step), load_ints(row + i + step)));
    }
    const Ints middle = load_ints(rows[1] + i);
    sum = hn::Add(sum, hn::Add(load_ints(rows[0] + i), load_ints(rows[2] + i)));
    sum = hn::Add(sum, hn::Add(middle, hn::ShiftLeft<2>(middle)));
    // No sum is near the middle between two multiples of 13, which is odd.
    const Floats blurred = hn::Round(hn::Mul(hn::ConvertTo(floats_tag, sum), thirteenth));
    const Floats value = hn::ConvertTo(floats_tag, middle);
    store(clipped(fused(hn::Sub(blurred, value), share, value), 255), out + i);
  }
  return i;
}

void blur_down(const std::uint8_t* const* rows, const float* weights, std::size_t size, float* out,
               std::size_t count) noexcept {
  const std::size_t middle = size / 2;
  for (std::size_t i = 0; i < count; i += lanes) {
    Floats sum = hn::Mul(load(rows[middle] + i), all(weights[middle]));
    for (std::size_t k = 0; k < middle; ++k) {
      const Ints pair = hn::Add(load_ints(rows[k] + i), load_ints(rows[size - 1 - k] + i));
      sum = fused(hn::ConvertTo(floats_tag, pair), all(weights[k]), sum);
    }
    hn::StoreU(sum, floats_tag, out + i);
  }
}

void blur_along(const float* in, std::size_t step, const float* weights, std::size_t size,
                std::uint8_t* out, std::size_t count) noexcept {
  const std::size_t middle = size / 2;
  for (std::size_t i = 0; i < count; i += lanes) {
    Floats sum = hn::Mul(hn::LoadU(floats_tag, in + i + middle * step), all(weights[middle]));
    for (std::size_t k = 0; k < middle; ++k) {
      const Floats pair = hn::Add(hn::LoadU(floats_tag, in + i + k * step),
                                  hn::LoadU(floats_tag, in + i + (size - 1 - k) * step));
      sum = fused(pair, all(weights[k]), sum);
    }
    store_ints(hn::NearestInt(sum), out + i);
  }
}

void places(const WarpRow& row, float* x, float* y, std::size_t count) noexcept {
  const auto& m = row.matrix;
  const Floats line = all(row.y);
  const Floats one = all(1);
  const Floats half = all(0.5F);
  for (std::size_t i = 0; i < count; i += lanes) {
    const Floats column = hn::Add(hn::Iota(floats_tag, static_cast<float>(i)), all(row.x));
    Floats at_x = hn::Add(fused(line, all(m[1]), hn::Mul(column, all(m[0]))), all(m[2]));
    Floats at_y = hn::Add(fused(line, all(m[4]), hn::Mul(column, all(m[3]))), all(m[5]));
    if (row.divides) {
      const Floats divisor = hn::Add(fused(line, all(m[7]), hn::Mul(column, all(m[6]))), one);
      at_x = hn::Sub(hn::Div(at_x, divisor), one);
      at_y = hn::Sub(hn::Div(at_y, divisor), one);
    }
    at_x = hn::Sub(hn::Mul(hn::Add(at_x, one), all(row.half[0])), half);
    at_y = hn::Sub(hn::Mul(hn::Add(at_y, one), all(row.half[1])), half);
    hn::StoreU(row.rounds ? hn::Round(at_x) : at_x, floats_tag, x + i);
    hn::StoreU(row.rounds ? hn::Round(at_y) : at_y, floats_tag, y + i);
  }
}

constexpr ColourLoops loops{levels, extremes, stretch, saturate,  turn_hue,   luma,
                            split,  join,     sharpen, blur_down, blur_along, places};

}  // namespace
}  // namespace fastio
HWY_AFTER_NAMESPACE();
