#include "transform/colours.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "transform/rows.h"

namespace fastio {
namespace {

constexpr float white = 255;

std::uint8_t as_byte(float value) noexcept {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, white));
}

// ------------------------------------- the loops, value by value

std::size_t levels(std::uint8_t* values, std::size_t count, float factor, float constant,
                   float weight) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = as_byte(std::fma(constant, weight, static_cast<float>(values[i]) * factor));
  }
  return count;
}

std::size_t extremes(const std::uint8_t* values, std::size_t count, std::uint8_t* least,
                     std::uint8_t* most) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t k = i % ColourLoops::together;
    least[k] = std::min(least[k], values[i]);
    most[k] = std::max(most[k], values[i]);
  }
  return count;
}

std::size_t stretch(std::uint8_t* values, std::size_t count, const float* low,
                    const float* scale) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t k = i % ColourLoops::together;
    values[i] = as_byte((static_cast<float>(values[i]) - low[k]) / scale[k]);
  }
  return count;
}

float luma_of(std::uint8_t red, std::uint8_t green, std::uint8_t blue) noexcept {
  const float two = std::fma(static_cast<float>(green), 0.587F, static_cast<float>(red) * 0.2989F);
  return std::floor(std::fma(static_cast<float>(blue), 0.114F, two));
}

void saturate(ColourPlanes& planes, float factor, float weight) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; ++i) {
    const float grey = luma_of(planes.red[i], planes.green[i], planes.blue[i]);
    for (std::uint8_t* value : {planes.red + i, planes.green + i, planes.blue + i}) {
      *value = as_byte(std::fma(grey, weight, static_cast<float>(*value) * factor));
    }
  }
}

void luma(ColourPlanes& planes) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; ++i) {
    planes.red[i] =
        static_cast<std::uint8_t>(luma_of(planes.red[i], planes.green[i], planes.blue[i]));
  }
}

struct Hsv {
  float hue, saturation, value;
};

Hsv hsv_of(float red, float green, float blue) noexcept {
  const float most = std::max({red, green, blue});
  const float range = most - std::min({red, green, blue});
  const float divisor = range == 0 ? 1 : range;
  const float below_red = (most - red) / divisor;
  const float below_green = (most - green) / divisor;
  const float below_blue = (most - blue) / divisor;
  const float place = most == red     ? below_blue - below_green
                      : most == green ? below_red + 2 - below_blue
                                      : below_green + 4 - below_red;
  const float turned = place * static_cast<float>(1.0 / 6.0) + 1;
  return {turned - std::floor(turned), range / (range == 0 ? 1 : most), most};
}

std::array<float, 3> rgb_of(const Hsv& hsv) noexcept {
  const float place = hsv.hue * 6;
  const float sector = std::floor(place);
  const float part = hsv.saturation * (place - sector);
  const float rest = 1 - hsv.saturation;
  const float value = hsv.value;
  const float falling = std::clamp((1 - part) * value, 0.0F, 1.0F);
  const float rising = std::clamp((part + rest) * value, 0.0F, 1.0F);
  const float low = std::clamp(rest * value, 0.0F, 1.0F);
  switch (static_cast<int>(sector)) {
    case 1: return {falling, value, low};
    case 2: return {low, value, rising};
    case 3: return {low, falling, value};
    case 4: return {rising, low, value};
    case 5: return {value, low, falling};
    default: return {value, rising, low};
  }
}

void turn_hue(ColourPlanes& planes, float turn) noexcept {
  constexpr auto unit = static_cast<float>(1.0 / 255.0);
  constexpr auto back = static_cast<float>(256.0 - 1e-3);
  for (std::size_t i = 0; i < ColourPlanes::pixels; ++i) {
    Hsv hsv =
        hsv_of(static_cast<float>(planes.red[i]) * unit, static_cast<float>(planes.green[i]) * unit,
               static_cast<float>(planes.blue[i]) * unit);
    hsv.hue += turn;
    hsv.hue -= std::floor(hsv.hue);
    const auto [red, green, blue] = rgb_of(hsv);
    planes.red[i] = as_byte(red * back);
    planes.green[i] = as_byte(green * back);
    planes.blue[i] = as_byte(blue * back);
  }
}

void split(const std::uint8_t* pixels, ColourPlanes& planes) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; ++i, pixels += 3) {
    planes.red[i] = pixels[0];
    planes.green[i] = pixels[1];
    planes.blue[i] = pixels[2];
  }
}

void join(const ColourPlanes& planes, std::uint8_t* pixels) noexcept {
  for (std::size_t i = 0; i < ColourPlanes::pixels; ++i, pixels += 3) {
    pixels[0] = planes.red[i];
    pixels[1] = planes.green[i];
    pixels[2] = planes.blue[i];
  }
}

std::size_t sharpen(const std::uint8_t* const (&rows)[3], std::size_t step, std::uint8_t* out,
                    std::size_t count, float weight) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    int sum = 4 * rows[1][i];
    for (const std::uint8_t* row : rows) sum += *(row + i - step) + row[i] + row[i + step];
    const float blurred = std::nearbyint(static_cast<float>(sum) * (1.0F / 13.0F));
    const auto value = static_cast<float>(rows[1][i]);
    out[i] = as_byte(std::fma(blurred - value, weight, value));
  }
  return count;
}

void blur_down(const std::uint8_t* const* rows, const float* weights, std::size_t size, float* out,
               std::size_t count) noexcept {
  const std::size_t middle = size / 2;
  for (std::size_t i = 0; i < count; ++i) {
    float sum = static_cast<float>(rows[middle][i]) * weights[middle];
    for (std::size_t k = 0; k < middle; ++k) {
      const auto pair = static_cast<float>(rows[k][i] + rows[size - 1 - k][i]);
      sum = std::fma(pair, weights[k], sum);
    }
    out[i] = sum;
  }
}

void blur_along(const float* in, std::size_t step, const float* weights, std::size_t size,
                std::uint8_t* out, std::size_t count) noexcept {
  const std::size_t middle = size / 2;
  for (std::size_t i = 0; i < count; ++i) {
    float sum = in[i + middle * step] * weights[middle];
    for (std::size_t k = 0; k < middle; ++k) {
      sum = std::fma(in[i + k * step] + in[i + (size - 1 - k) * step], weights[k], sum);
    }
    out[i] = as_byte(std::nearbyint(sum));
  }
}

void places(const WarpRow& row, float* x, float* y, std::size_t count) noexcept {
  const auto& m = row.matrix;
  for (std::size_t i = 0; i < count; ++i) {
    const float column = static_cast<float>(i) + row.x;
    float at_x = std::fma(row.y, m[1], column * m[0]) + m[2];
    float at_y = std::fma(row.y, m[4], column * m[3]) + m[5];
    if (row.divides) {
      const float divisor = std::fma(row.y, m[7], column * m[6]) + 1;
      at_x = at_x / divisor - 1;
      at_y = at_y / divisor - 1;
    }
    at_x = (at_x + 1) * row.half[0] - 0.5F;
    at_y = (at_y + 1) * row.half[1] - 0.5F;
    x[i] = row.rounds ? std::nearbyint(at_x) : at_x;
    y[i] = row.rounds ? std::nearbyint(at_y) : at_y;
  }
}

constexpr ColourLoops scalar_colours{levels, extremes, stretch, saturate,  turn_hue,   luma,
                                     split,  join,     sharpen, blur_down, blur_along, places};

// ------------------------------------- pictures

std::size_t channels_of(const Picture& picture) noexcept {
  return static_cast<std::size_t>(picture.channels);
}

std::size_t bytes_of(const Picture& picture) noexcept {
  return picture.height * picture.row_bytes();
}

/// Calls `change` with the planes of all pixels, a few at a time, and writes them back where
/// `writes`. `change` also gets how many of them are pixels.
template <bool writes, typename Change>
void over_planes(const ColourLoops& loops, const Picture& picture, const Change& change) noexcept {
  constexpr std::size_t block = 3 * ColourPlanes::pixels;
  ColourPlanes planes;
  const std::size_t size = bytes_of(picture);
  std::size_t at = 0;
  for (; at + block <= size; at += block) {
    loops.split(picture.data + at, planes);
    change(planes, ColourPlanes::pixels);
    if (writes) loops.join(planes, picture.data + at);
  }
  if (at == size) return;
  alignas(64) std::array<std::uint8_t, block> rest{};
  std::memcpy(rest.data(), picture.data + at, size - at);
  loops.split(rest.data(), planes);
  change(planes, (size - at) / 3);
  if (!writes) return;
  loops.join(planes, rest.data());
  std::memcpy(picture.data + at, rest.data(), size - at);
}

/// The mean of the luma, which is a whole number for each pixel.
float mean_luma(const ColourLoops& loops, const Picture& picture) noexcept {
  std::uint64_t sum = 0;
  const auto add = [&sum](const std::uint8_t* values, std::size_t count) {
    std::uint32_t part = 0;
    for (std::size_t i = 0; i < count; ++i) part += values[i];
    sum += part;
  };
  if (picture.channels == 3) {
    over_planes<false>(loops, picture, [&](ColourPlanes& planes, std::size_t pixels) {
      loops.luma(planes);
      add(planes.red, pixels);
    });
  } else {
    for (std::size_t y = 0; y < picture.height; ++y) add(picture.row(y), picture.width);
  }
  return static_cast<float>(sum) / static_cast<float>(picture.height * picture.width);
}

void blend(const ColourLoops& loops, const Picture& picture, double factor,
           float constant) noexcept {
  const auto scale = static_cast<float>(factor);
  const auto weight = static_cast<float>(1.0 - factor);
  const std::size_t size = bytes_of(picture);
  const std::size_t done = loops.levels(picture.data, size, scale, constant, weight);
  levels(picture.data + done, size - done, scale, constant, weight);
}

/// Bits of values: those of at least `threshold` are inverted, and of all `mask` is kept.
void change_bits(const Picture& picture, unsigned threshold, unsigned mask) noexcept {
  std::uint8_t* const values = picture.data;
  const std::size_t size = bytes_of(picture);
  if (threshold > 255) {
    for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<std::uint8_t>(values[i] & mask);
    return;
  }
  const auto least = static_cast<std::uint8_t>(threshold);
  const auto kept = static_cast<std::uint8_t>(mask);
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint8_t value = values[i];
    const auto inverted = static_cast<std::uint8_t>(value ^ 255U);
    values[i] = static_cast<std::uint8_t>((value >= least ? inverted : value) & kept);
  }
}

using Table = std::array<std::uint8_t, 256>;

/// Replaces each value by what the table of its channel has for it.
void look_up(const Picture& picture, const std::array<Table, 3>& tables) noexcept {
  std::uint8_t* value = picture.data;
  std::uint8_t* const end = value + bytes_of(picture);
  if (picture.channels == 1) {
    for (; value != end; ++value) *value = tables[0][*value];
    return;
  }
  for (; value != end; value += 3) {
    value[0] = tables[0][value[0]];
    value[1] = tables[1][value[1]];
    value[2] = tables[2][value[2]];
  }
}

void stretch_contrast(const ColourLoops& loops, const Picture& picture) noexcept {
  constexpr std::size_t together = ColourLoops::together;
  const std::size_t size = bytes_of(picture);
  const std::size_t channels = channels_of(picture);
  std::array<std::uint8_t, together> least;
  std::array<std::uint8_t, together> most;
  least.fill(255);
  most.fill(0);
  std::uint8_t* const values = picture.data;
  const std::size_t seen = loops.extremes(values, size, least.data(), most.data());
  extremes(values + seen, size - seen, least.data(), most.data());
  std::array<float, together> first;
  std::array<float, together> scale;
  for (std::size_t c = 0; c < channels; ++c) {
    std::uint8_t low = 255;
    std::uint8_t high = 0;
    for (std::size_t i = c; i < together; i += channels) {
      low = std::min(low, least[i]);
      high = std::max(high, most[i]);
    }
    const bool is_flat = low == high;
    for (std::size_t i = c; i < together; i += channels) {
      first[i] = is_flat ? 0 : static_cast<float>(low);
      scale[i] = is_flat ? 1 : static_cast<float>(high - low) * (1.0F / white);
    }
  }
  const std::size_t done = loops.stretch(values, size, first.data(), scale.data());
  stretch(values + done, size - done, first.data(), scale.data());
}

void equalize(const Picture& picture) noexcept {
  const std::size_t channels = channels_of(picture);
  std::array<std::array<std::uint32_t, 256>, 3> counts{};
  const std::uint8_t* const end = picture.data + bytes_of(picture);
  for (const std::uint8_t* value = picture.data; value != end; value += channels) {
    for (std::size_t c = 0; c < channels; ++c) ++counts[c][value[c]];
  }
  const std::uint64_t pixels = picture.height * picture.width;
  std::array<Table, 3> tables{};
  for (std::size_t c = 0; c < channels; ++c) {
    std::size_t brightest = 255;
    while (counts[c][brightest] == 0) --brightest;
    const std::uint64_t step = (pixels - counts[c][brightest]) / 255;
    std::uint64_t below = 0;
    for (std::size_t v = 0; v < 256; ++v) {
      const std::uint64_t level = step == 0 ? v : (below + step / 2) / step;
      tables[c][v] = static_cast<std::uint8_t>(std::min<std::uint64_t>(level, 255));
      below += counts[c][v];
    }
  }
  look_up(picture, tables);
}

void erase(const Picture& picture, const ColourWork& work) noexcept {
  const auto [top, left, bottom, right] = std::array{
      static_cast<std::size_t>(work.amounts[0]), static_cast<std::size_t>(work.amounts[1]),
      static_cast<std::size_t>(work.amounts[2]), static_cast<std::size_t>(work.amounts[3])};
  if (top == bottom || left == right) return;
  const std::size_t channels = channels_of(picture);
  const std::size_t bytes = (right - left) * channels;
  std::uint8_t* const first = picture.row(top) + left * channels;
  for (std::size_t c = 0; c < channels; ++c) {
    const std::uint8_t value = as_byte(static_cast<float>(work.amounts[4 + c]));
    for (std::size_t i = c; i < bytes; i += channels) first[i] = value;
  }
  for (std::size_t y = top + 1; y < bottom; ++y) {
    std::memcpy(picture.row(y) + left * channels, first, bytes);
  }
}

void flip_y(const Picture& picture) noexcept {
  for (std::size_t y = 0; y < picture.height / 2; ++y) {
    std::swap_ranges(picture.row(y), picture.row(y) + picture.row_bytes(),
                     picture.row(picture.height - 1 - y));
  }
}

/// Position i of a line of `size` that goes on mirrored at both ends.
std::size_t mirrored(std::ptrdiff_t i, std::size_t size) noexcept {
  const auto last = static_cast<std::ptrdiff_t>(size) - 1;
  return static_cast<std::size_t>(i < 0 ? -i : i > last ? 2 * last - i : i);
}

/// Writes the weights of a Gaussian.
void gaussian(double sigma, std::size_t size, float* weights) noexcept {
  const auto middle = static_cast<double>(size / 2);
  double sum = 0;
  const auto weight = [&](std::size_t k) {
    const double distance = (static_cast<double>(k) - middle) / sigma;
    return std::exp(-0.5 * distance * distance);
  };
  for (std::size_t k = 0; k < size; ++k) sum += weight(k);
  for (std::size_t k = 0; k < size; ++k) weights[k] = static_cast<float>(weight(k) / sum);
}

/// One pixel of a warp, between four of the picture or outside it.
class WarpedPixel {
 public:
  WarpedPixel(const std::uint8_t* from, const Picture& picture, const ColourWork& work) noexcept
      : from_(from),
        width_(static_cast<float>(picture.width)),
        height_(static_cast<float>(picture.height)),
        row_bytes_(picture.row_bytes()),
        channels_(channels_of(picture)),
        is_filled_(work.amounts[9] != 0) {
    for (std::size_t c = 0; c < channels_; ++c) {
      fill_[c] = static_cast<float>(work.amounts[10 + c]);
    }
  }

  void nearest(float x, float y, std::uint8_t* out) const noexcept {
    if (is_inside(x, y)) {
      std::memcpy(out, at(x, y), channels_);
      return;
    }
    for (std::size_t c = 0; c < channels_; ++c) out[c] = is_filled_ ? as_byte(fill_[c]) : 0;
  }

  void bilinear(float x, float y, std::uint8_t* out) const noexcept {
    if (!(x > -1 && x < width_ && y > -1 && y < height_)) {  // what is no number, too
      nearest(-1, -1, out);
      return;
    }
    const std::ptrdiff_t left = whole_below(x);
    const std::ptrdiff_t top = whole_below(y);
    const float right = x - static_cast<float>(left);
    const float down = y - static_cast<float>(top);
    const std::array<float, 4> shares{(1 - down) * (1 - right), (1 - down) * right,
                                      down * (1 - right), down * right};
    const bool is_within = left >= 0 && top >= 0 && static_cast<float>(left + 1) < width_ &&
                           static_cast<float>(top + 1) < height_;
    if (channels_ == 3) {
      is_within ? sum<3, true>(left, top, shares, out) : sum<3, false>(left, top, shares, out);
    } else {
      is_within ? sum<1, true>(left, top, shares, out) : sum<1, false>(left, top, shares, out);
    }
  }

 private:
  /// The largest whole number that is not above, of numbers above -2.
  [[nodiscard]] static std::ptrdiff_t whole_below(float value) noexcept {
    const auto whole = static_cast<std::ptrdiff_t>(value);
    return static_cast<float>(whole) > value ? whole - 1 : whole;
  }

  /// To a whole number, halves to even ones: a call of nearbyint would cost more than the rest.
  [[nodiscard]] static float rounded(float value) noexcept {
    constexpr float no_fraction = 12582912;  // 1.5 * 2^23
    return (value + no_fraction) - no_fraction;
  }

  /// The four pixels from (left, top) on by their shares; those outside are black.
  template <std::size_t channels, bool is_within>
  void sum(std::ptrdiff_t left, std::ptrdiff_t top, const std::array<float, 4>& shares,
           std::uint8_t* out) const noexcept {
    std::array<float, channels> total{};
    float mask = 0;
    for (std::size_t corner = 0; corner < 4; ++corner) {
      const std::ptrdiff_t x = left + static_cast<std::ptrdiff_t>(corner % 2);
      const std::ptrdiff_t y = top + static_cast<std::ptrdiff_t>(corner / 2);
      if (!is_within && !is_inside(static_cast<float>(x), static_cast<float>(y))) continue;
      const std::uint8_t* const pixel =
          from_ + static_cast<std::size_t>(y) * row_bytes_ + static_cast<std::size_t>(x) * channels;
      mask += shares[corner];
      for (std::size_t c = 0; c < channels; ++c) {
        total[c] += static_cast<float>(pixel[c]) * shares[corner];
      }
    }
    for (std::size_t c = 0; c < channels; ++c) {
      // torchvision fades edges out twice where it fills them.
      const float value = is_filled_ ? (total[c] - fill_[c]) * mask + fill_[c] : total[c];
      out[c] = as_byte(rounded(value));
    }
  }

  [[nodiscard]] bool is_inside(float x, float y) const noexcept {
    return x >= 0 && x < width_ && y >= 0 && y < height_;
  }
  [[nodiscard]] const std::uint8_t* at(float x, float y) const noexcept {
    return from_ + static_cast<std::size_t>(y) * row_bytes_ +
           static_cast<std::size_t>(x) * channels_;
  }

  const std::uint8_t* from_;
  float width_;
  float height_;
  std::size_t row_bytes_;
  std::size_t channels_;
  bool is_filled_;
  std::array<float, 3> fill_{};
};

WarpRow first_row(const ColourWork& work, std::size_t rows, std::size_t columns) noexcept {
  const auto width = static_cast<float>(columns);
  const auto height = static_cast<float>(rows);
  const bool is_affine = static_cast<ColourStep>(work.step) == ColourStep::affine;
  WarpRow row{{}, {width / 2, height / 2}, 0.5F, 0.5F, !is_affine, work.amounts[8] == 0};
  if (is_affine) {
    row.x = (1 - width) * 0.5F;
    row.y = (1 - height) * 0.5F;
  }
  for (std::size_t i = 0; i < 8; ++i) {
    const auto number = static_cast<float>(work.amounts[i]);
    row.matrix[i] = i < 6 ? number / row.half[i / 3] : number;
  }
  return row;
}

bool is_whole(double number, double least, double most) noexcept {
  return number >= least && number <= most && number == std::floor(number);
}

const char* erase_fault(const ColourWork& work, std::size_t height, std::size_t width) noexcept {
  const auto& [top, left, bottom, right, a, b, c, d, e, f, g, h, i] = work.amounts;
  const bool fits = is_whole(top, 0, bottom) && is_whole(left, 0, right) &&
                    is_whole(bottom, 0, static_cast<double>(height)) &&
                    is_whole(right, 0, static_cast<double>(width));
  return fits ? nullptr : "erases outside the picture";
}

const char* blur_fault(const ColourWork& work, std::size_t height, std::size_t width) noexcept {
  const std::array sides{width, height};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const double size = work.amounts[axis];
    if (!is_whole(size, 1, 2 * static_cast<double>(sides[axis]) - 1) || std::fmod(size, 2) == 0) {
      return "the blur's kernel is not odd, or reaches beyond the mirrored picture";
    }
    if (!(work.amounts[2 + axis] > 0)) return "the blur's sigma is not above 0";
  }
  return nullptr;
}

constexpr std::size_t numbers_of_a_call = ColourWork::amounts_of_a_step - 2;

/// How many steps behind a call hold the rest of its numbers.
std::size_t steps_of_more_numbers(const ColourWork& call) noexcept {
  const auto count = static_cast<std::size_t>(call.amounts[1]);
  const std::size_t more = count - std::min(count, numbers_of_a_call);
  return (more + ColourWork::amounts_of_a_step - 1) / ColourWork::amounts_of_a_step;
}

const char* call_fault(const ColourProgram& program, std::size_t number) noexcept {
  constexpr double any_address = 9007199254740992.0;  // up to here, doubles hold every whole number
  constexpr double most_numbers = 1 << 20;
  const ColourWork& call = program.steps[number];
  if (!is_whole(call.amounts[0], 1, any_address)) return "calls no function";
  if (!is_whole(call.amounts[1], 0, most_numbers))
    return "a function takes no such number of numbers";
  const std::size_t more = steps_of_more_numbers(call);
  if (more > program.count - number - 1) return "numbers of a function are missing";
  for (std::size_t i = number + 1; i <= number + more; ++i) {
    if (static_cast<ColourStep>(program.steps[i].step) != ColourStep::more_numbers) {
      return "numbers of a function are missing";
    }
  }
  return nullptr;
}

const char* permute_fault(const ColourWork& work) noexcept {
  unsigned seen = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    if (!is_whole(work.amounts[c], 0, 2)) return "there is no such channel";
    seen |= 1U << static_cast<unsigned>(work.amounts[c]);
  }
  return seen == 7 ? nullptr : "a channel gets lost";
}

const char* noise_fault(const ColourWork& work) noexcept {
  if (work.amounts[1] < 0) return "the deviation of noise is below 0";
  for (std::size_t part = 2; part < 6; ++part) {
    if (!is_whole(work.amounts[part], 0, 0xFFFF)) return "a seed of noise has no such part";
  }
  return nullptr;
}

/// The number below which a normal one lies with this probability, above 0.5: Acklam's rational
/// approximation (2003), made exact by a step of Halley's method.
double normal_quantile(double probability) noexcept {
  constexpr std::array a{-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                         1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr std::array b{-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                         6.680131188771972e+01, -1.328068155288572e+01};
  constexpr std::array c{-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                         -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr std::array d{7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                         3.754408661907416e+00};
  double x = 0;
  if (probability <= 0.97575) {
    const double q = probability - 0.5;
    const double r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  } else {
    const double q = std::sqrt(-2 * std::log(1 - probability));
    x = -(((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
        ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  }
  constexpr double root_of_two_pi = 2.5066282746310002;
  const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - probability;
  const double step = error * root_of_two_pi * std::exp(x * x / 2);
  return x - step / (1 + x * step / 2);
}

/// 32 bits that belong to a pair of values and a seed: of the first, the lower half.
std::uint32_t noise_bits(std::uint32_t pair, const std::array<std::uint32_t, 2>& seed) noexcept {
  std::uint32_t bits = pair * 0x9E3779B9U + seed[0];
  bits = (bits ^ bits >> 16) * 0x21F0AAADU;
  bits = (bits ^ bits >> 15 ^ seed[1]) * 0x735A2D97U;
  bits = (bits ^ bits >> 15) * 0x21F0AAADU;
  return bits ^ bits >> 16;
}

void permute(const Picture& picture, const ColourWork& work) noexcept {
  std::array<std::size_t, 3> from{};
  for (std::size_t c = 0; c < 3; ++c) from[c] = static_cast<std::size_t>(work.amounts[c]);
  const std::size_t count = bytes_of(picture);
  for (std::size_t i = 0; i < count; i += 3) {
    std::uint8_t* const pixel = picture.data + i;
    const std::array<std::uint8_t, 3> old{pixel[0], pixel[1], pixel[2]};
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = old[from[c]];
  }
}

constexpr double last_filter = 5;
constexpr double longest_patch = 1024;  // pixels of a side
constexpr double most_together = 64;    // patches along a block, and frames of one

const char* patches_fault(const ColourWork& work) noexcept {
  const bool is_known =
      is_whole(work.amounts[0], 1, longest_patch) && is_whole(work.amounts[1], 1, most_together) &&
      is_whole(work.amounts[2], 1, most_together) && is_whole(work.amounts[3], 0, 1);
  return is_known ? nullptr : "there are no such patches";
}

const char* canvas_fault(const ColourWork& work) noexcept {
  const double most = longest_side;
  if (!is_whole(work.amounts[0], 1, most) || !is_whole(work.amounts[1], 1, most)) {
    return "a canvas has no such size";
  }
  if (!is_whole(work.amounts[2], 0, last_filter)) return "a canvas has no such filter";
  for (std::size_t c = 0; c < 4; ++c) {
    if (!is_whole(work.amounts[3 + c], 0, 0xFFFF)) return "a canvas is not filled by such numbers";
  }
  return nullptr;
}

/// Follows the sizes of a picture through the canvases of its program.
class SizeOfRow {
 public:
  SizeOfRow(std::size_t of_row, std::size_t across) noexcept
      : height(of_row), width(across), row_height_(of_row), row_width_(across) {}

  /// What is wrong with step `number` of the program, if it is a canvas or a plan.
  [[nodiscard]] const char* step_fault(const ColourProgram& program, std::size_t number) noexcept {
    const ColourWork& work = program.steps[number];
    if (static_cast<ColourStep>(work.step) == ColourStep::plan) {
      const bool has_canvas =
          number + 1 < program.count &&
          static_cast<ColourStep>(program.steps[number + 1].step) == ColourStep::canvas;
      return has_canvas && begins_with_canvas(program) ? nullptr : "a plan has no canvas";
    }
    if (static_cast<ColourStep>(work.step) != ColourStep::canvas) return nullptr;
    const char* fault = canvas_fault(work);
    if (fault != nullptr) return fault;
    const Canvas canvas = canvas_of(work);
    if (number > 0) fault = plan_fault_of(program.steps[number - 1], canvas);
    height = canvas.height;
    width = canvas.width;
    return fault;
  }

  [[nodiscard]] const char* end_fault(const ColourProgram& program) const noexcept {
    const auto patches = patches_of(program);
    if (patches) return patches_fault(*patches, begins_with_canvas(program));
    return height == row_height_ && width == row_width_ ? nullptr
                                                        : "its last canvas is not the row";
  }

  std::size_t height;
  std::size_t width;

 private:
  /// What is wrong with the patches of the picture as it is at the end.
  [[nodiscard]] const char* patches_fault(const Patches& patches, bool has_canvas) const noexcept {
    if (!has_canvas) return "patches have no canvas";
    if (patches.frames * patches.side * patches.side != row_width_) {
      return "its patches have not the width of the row";
    }
    return patches.along(height) * patches.along(width) <= row_height_
               ? nullptr
               : "its patches are more than the row has lines";
  }

  /// What is wrong with the step before a canvas, for the picture as it is up to there.
  [[nodiscard]] const char* plan_fault_of(const ColourWork& work,
                                          const Canvas& canvas) const noexcept {
    if (static_cast<ColourStep>(work.step) != ColourStep::plan) return "a canvas has no plan";
    const double most = longest_side;
    for (const double amount : work.amounts) {
      if (!is_whole(amount, 0, most)) return "a plan has no such numbers";
    }
    const Plan plan = plan_of(work);
    const char* fault = plan_fault(plan, canvas.height, canvas.width);
    if (fault != nullptr) return fault;
    return plan.is_empty() || box_of(plan).is_inside(width, height) ? nullptr
                                                                    : "its box leaves the picture";
  }

  const std::size_t row_height_;
  const std::size_t row_width_;
};

const char* step_fault(const ColourWork& work, std::size_t height, std::size_t width) noexcept {
  if (!is_whole(work.step, 0, static_cast<double>(ColourStep::last))) return "no such step";
  for (const double amount : work.amounts) {
    if (!std::isfinite(amount)) return "an amount is not a number";
  }
  const double amount = work.amounts[0];
  switch (static_cast<ColourStep>(work.step)) {
    case ColourStep::hue:
      return std::abs(amount) <= 1 ? nullptr : "the hue turns by more than the circle";
    case ColourStep::solarize: return amount >= 0 && amount <= 256 ? nullptr : "no such threshold";
    case ColourStep::posterize: return is_whole(amount, 0, 8) ? nullptr : "values have 0 to 8 bits";
    case ColourStep::erase: return erase_fault(work, height, width);
    case ColourStep::blur: return blur_fault(work, height, width);
    case ColourStep::permute: return permute_fault(work);
    case ColourStep::noise: return noise_fault(work);
    case ColourStep::patches: return patches_fault(work);
    default: return nullptr;
  }
}

}  // namespace

const ColourLoops& colour_loops(SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx512) return avx512_colours;
  static const bool has_fma = __builtin_cpu_supports("fma");
  if (level >= SimdLevel::avx2 && has_fma) return avx2_colours;
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon) return neon_colours;
#else
  (void)level;
#endif
  return scalar_colours;
}

const std::array<float, count_of_quantiles>& normal_quantiles() noexcept {
  static const auto quantiles = [] {
    std::array<float, count_of_quantiles> made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      const double share = (static_cast<double>(i) + 0.5) / (2 * static_cast<double>(made.size()));
      made[i] = static_cast<float>(normal_quantile(0.5 + share));
    }
    return made;
  }();
  return quantiles;
}

Canvas canvas_of(const ColourWork& work) noexcept {
  const auto number = [&](std::size_t i) { return static_cast<std::size_t>(work.amounts[i]); };
  Canvas canvas{number(0), number(1), static_cast<int>(number(2)), {}};
  for (std::size_t c = 0; c < 4; ++c) canvas.fill[c] = static_cast<std::uint16_t>(number(3 + c));
  return canvas;
}

Plan plan_of(const ColourWork& work) noexcept {
  std::array<std::int32_t, ColourWork::amounts_of_a_step> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(work.amounts[i]);
  }
  Plan plan{};
  static_assert(sizeof plan == sizeof numbers);
  std::memcpy(&plan, numbers.data(), sizeof plan);
  return plan;
}

std::optional<Patches> patches_of(const ColourProgram& program) noexcept {
  if (program.count == 0) return {};
  const ColourWork& work = program.steps[program.count - 1];
  if (static_cast<ColourStep>(work.step) != ColourStep::patches) return {};
  const auto number = [&](std::size_t i) { return static_cast<std::size_t>(work.amounts[i]); };
  return Patches{number(0), number(1), number(2), number(3) != 0};
}

namespace {

/// The pixels of one patch, once; `width` and `height` of them are in the picture.
void cut_patch(const Picture& picture, const Patches& patches, const PixelView& in,
               std::size_t width, std::size_t height, std::uint8_t* out) noexcept {
  const std::size_t side = patches.side, plane = side * side * patches.frames;
  const auto channels = static_cast<std::size_t>(picture.channels);
  if (patches.planar) {
    split_rows(picture.channels, simd_level())(in, {out, side, plane}, width, height, false);
    return;
  }
  for (std::size_t y = 0; y < height; ++y) {
    std::memcpy(out + y * side * channels, in.data + y * in.stride, width * channels);
  }
}

/// Repeats what each of `planes` parts of a patch begins with.
void repeat_frames(std::uint8_t* patch, std::size_t planes, std::size_t bytes,
                   std::size_t frames) noexcept {
  for (std::size_t plane = 0; plane < planes; ++plane) {
    std::uint8_t* const first = patch + plane * frames * bytes;
    for (std::size_t k = 1; k < frames; ++k) std::memcpy(first + k * bytes, first, bytes);
  }
}

/// Asks for memory that is written next: channels and frames of a patch are written by turns, which
/// is more than the processor foresees.
void prefetch_for_writing(std::uint8_t* memory, std::size_t bytes) noexcept {
  constexpr std::size_t most_bytes = 4096;
  constexpr std::size_t line_bytes = 64;
  for (std::size_t at = 0; at < std::min(bytes, most_bytes); at += line_bytes) {
    __builtin_prefetch(memory + at, 1);
  }
}

}  // namespace

void cut_patches(const Picture& picture, const Patches& patches, const Picture& out) noexcept {
  const auto [side, merge, frames, planar] = patches;
  const auto channels = static_cast<std::size_t>(picture.channels);
  const std::size_t blocks_down = patches.along(picture.height) / merge;
  const std::size_t blocks_across = patches.along(picture.width) / merge;
  const std::size_t bytes = out.row_bytes(), planes = planar ? channels : 1;
  std::uint8_t* patch = out.data;
  const std::uint8_t* const last = patch + (out.height - 1) * bytes;
  const auto cut = [&](std::size_t row, std::size_t column) {
    const std::size_t top = std::min(row * side, picture.height);
    const std::size_t left = std::min(column * side, picture.width);
    const std::size_t height = std::min(side, picture.height - top);
    const std::size_t width = std::min(side, picture.width - left);
    if (patch != last) prefetch_for_writing(patch + bytes, bytes);
    if (width < side || height < side) std::memset(patch, 0, bytes);
    if (width > 0 && height > 0) {
      const PixelView in{picture.row(top) + left * channels, picture.row_bytes()};
      cut_patch(picture, patches, in, width, height, patch);
      repeat_frames(patch, planes, bytes / frames / planes, frames);
    }
    patch += bytes;
  };
  for (std::size_t y = 0; y < blocks_down; ++y) {
    for (std::size_t x = 0; x < blocks_across; ++x) {
      for (std::size_t i = 0; i < merge * merge; ++i) {
        cut(y * merge + i / merge, x * merge + i % merge);
      }
    }
  }
  std::memset(patch, 0, (out.height - blocks_down * blocks_across * merge * merge) * bytes);
}

bool begins_with_canvas(const ColourProgram& program) noexcept {
  return program.count > 0 && static_cast<ColourStep>(program.steps[0].step) == ColourStep::canvas;
}

std::size_t next_plan(const ColourProgram& program, std::size_t first) noexcept {
  std::size_t i = first;
  while (i < program.count && static_cast<ColourStep>(program.steps[i].step) != ColourStep::plan) {
    ++i;
  }
  return std::min(i, program.count);
}

const char* colour_fault(const ColourProgram& program, std::size_t height, std::size_t width,
                         int channels) noexcept {
  bool mixes = false;
  SizeOfRow size(height, width);
  for (std::size_t i = 0; i < program.count; ++i) {
    const char* fault = step_fault(program.steps[i], size.height, size.width);
    if (fault != nullptr) return fault;
    fault = size.step_fault(program, i);
    if (fault != nullptr) return fault;
    const auto step = static_cast<ColourStep>(program.steps[i].step);
    const bool is_of_any = step == ColourStep::none || step == ColourStep::erase ||
                           step == ColourStep::flip_x || step == ColourStep::flip_y ||
                           step == ColourStep::call || step == ColourStep::more_numbers ||
                           step == ColourStep::canvas || step == ColourStep::plan ||
                           step == ColourStep::patches;
    if (step == ColourStep::patches && i + 1 < program.count) return "something is done to patches";
    if (channels != 1 && channels != 3 && !is_of_any) {
      return "pictures have neither 1 nor 3 channels";
    }
    mixes = mixes || step == ColourStep::begin_mix;
    const bool goes_on = step > ColourStep::begin_mix && step <= ColourStep::end_mix;
    if (goes_on && !mixes) return "a mix goes on that was not begun";
    fault = step == ColourStep::call ? call_fault(program, i) : nullptr;
    if (fault != nullptr) return fault;
  }
  return size.end_fault(program);
}

const char* move_fault(const ColourProgram& program, std::size_t height,
                       std::size_t width) noexcept {
  SizeOfRow size(height, width);
  for (std::size_t i = 0; i < program.count; ++i) {
    const ColourWork& work = program.steps[i];
    const char* fault = step_fault(work, size.height, size.width);
    if (fault != nullptr) return fault;
    fault = size.step_fault(program, i);
    if (fault != nullptr) return fault;
    switch (static_cast<ColourStep>(work.step)) {
      case ColourStep::none:
      case ColourStep::canvas:
      case ColourStep::plan:
      case ColourStep::flip_x:
      case ColourStep::flip_y: break;
      case ColourStep::affine:
      case ColourStep::perspective:
        if (work.amounts[8] != 0) return "masks are read by the nearest pixel";
        if (!(work.amounts[10] >= 0)) return "the number outside is below 0";
        break;
      default: return "masks have no colours";
    }
  }
  return size.end_fault(program);
}

double number_outside(const ColourWork& work) noexcept {
  switch (static_cast<ColourStep>(work.step)) {
    case ColourStep::affine:
    case ColourStep::perspective: return work.amounts[10];
    case ColourStep::canvas: return work.amounts[3];
    default: return 0;
  }
}

std::size_t floats_of_places(std::size_t width) noexcept {
  return 2 * (width + ColourLoops::slack);
}

void moved_places(const ColourWork& work, std::size_t height, std::size_t width, std::size_t y,
                  float* memory, std::int64_t* out) noexcept {
  const auto step = static_cast<ColourStep>(work.step);
  const auto columns = static_cast<std::int64_t>(width);
  if (step != ColourStep::affine && step != ColourStep::perspective) {
    const std::size_t line = step == ColourStep::flip_y ? height - 1 - y : y;
    const auto first = static_cast<std::int64_t>(line) * columns;
    const bool is_mirrored = step == ColourStep::flip_x;
    for (std::int64_t i = 0; i < columns; ++i) {
      out[i] = first + (is_mirrored ? columns - 1 - i : i);
    }
    return;
  }
  WarpRow row = first_row(work, height, width);
  row.y += static_cast<float>(y);
  float* const y_places = memory + width + ColourLoops::slack;
  colour_loops(simd_level()).places(row, memory, y_places, width);
  const auto right = static_cast<float>(width);
  const auto bottom = static_cast<float>(height);
  for (std::size_t i = 0; i < width; ++i) {
    const float at_x = memory[i];
    const float at_y = y_places[i];
    const bool is_inside = at_x >= 0 && at_x < right && at_y >= 0 && at_y < bottom;
    out[i] = is_inside ? static_cast<std::int64_t>(at_y) * columns + static_cast<std::int64_t>(at_x)
                       : -1;
  }
}

Colourist::Colourist(SimdLevel level) noexcept : level_(level), loops_(&colour_loops(level)) {}

Status Colourist::run(const ColourProgram& program, const Picture& picture) noexcept {
  if (bytes_of(picture) == 0) return Status::ok;
  for (std::size_t i = 0; i < program.count; ++i) {
    const ColourWork& work = program.steps[i];
    if (static_cast<ColourStep>(work.step) == ColourStep::call) {
      const Status status = call(&work, picture);
      if (status != Status::ok) return status;
    } else if (!step(work, picture)) {
      return Status::unsupported;  // no memory
    }
  }
  return Status::ok;
}

/// `work` is followed by the steps with the rest of its numbers.
Status Colourist::call(const ColourWork* work, const Picture& picture) noexcept {
  const auto count = static_cast<std::size_t>(work->amounts[1]);
  auto* const numbers =
      reinterpret_cast<double*>(numbers_.reserve(std::max<std::size_t>(count, 1) * sizeof(double)));
  if (numbers == nullptr) return Status::unsupported;
  std::size_t done = std::min(count, numbers_of_a_call);
  std::copy_n(work->amounts.begin() + 2, done, numbers);
  for (const ColourWork* more = work + 1; done < count; ++more) {
    const std::size_t some = std::min(count - done, ColourWork::amounts_of_a_step);
    std::copy_n(more->amounts.begin(), some, numbers + done);
    done += some;
  }
  const auto address = static_cast<std::uintptr_t>(work->amounts[0]);
  const auto function = reinterpret_cast<PictureCall>(address);
  const auto result = function(picture.data, static_cast<std::int64_t>(picture.height),
                               static_cast<std::int64_t>(picture.width), picture.channels, numbers,
                               static_cast<std::int64_t>(count));
  return result == 0 ? Status::ok : Status::failed;
}

bool Colourist::step(const ColourWork& work, const Picture& picture) noexcept {
  const ColourLoops& loops = *loops_;
  const double amount = work.amounts[0];
  const bool has_colour = picture.channels == 3;
  switch (const auto step = static_cast<ColourStep>(work.step)) {
    case ColourStep::none:
    case ColourStep::call:  // see run
    case ColourStep::more_numbers:
    case ColourStep::canvas:
    case ColourStep::plan:
    case ColourStep::patches: break;
    case ColourStep::brightness: blend(loops, picture, amount, 0); break;
    case ColourStep::contrast: blend(loops, picture, amount, mean_luma(loops, picture)); break;
    case ColourStep::saturation:
      if (has_colour) {
        over_planes<true>(loops, picture, [&](ColourPlanes& planes, std::size_t) {
          loops.saturate(planes, static_cast<float>(amount), static_cast<float>(1.0 - amount));
        });
      }
      break;
    case ColourStep::hue:
      if (has_colour) {
        over_planes<true>(loops, picture, [&](ColourPlanes& planes, std::size_t) {
          loops.turn_hue(planes, static_cast<float>(amount));
        });
      }
      break;
    case ColourStep::grey:
      if (has_colour) {
        over_planes<true>(loops, picture, [&](ColourPlanes& planes, std::size_t) {
          loops.luma(planes);
          std::memcpy(planes.green, planes.red, ColourPlanes::pixels);
          std::memcpy(planes.blue, planes.red, ColourPlanes::pixels);
        });
      }
      break;
    case ColourStep::permute:
      if (has_colour) permute(picture, work);
      break;
    case ColourStep::noise: return add_noise(picture, work);
    case ColourStep::invert: change_bits(picture, 0, 255); break;
    case ColourStep::solarize:
      change_bits(picture, static_cast<unsigned>(std::ceil(static_cast<float>(amount))), 255);
      break;
    case ColourStep::posterize:
      change_bits(picture, 256, 255U << (8 - static_cast<unsigned>(amount)));
      break;
    case ColourStep::autocontrast: stretch_contrast(loops, picture); break;
    case ColourStep::equalize: equalize(picture); break;
    case ColourStep::sharpness: return sharpen(picture, amount);
    case ColourStep::blur: return blur(picture, work);
    case ColourStep::erase: erase(picture, work); break;
    case ColourStep::flip_x: return flip_x(picture);
    case ColourStep::flip_y: flip_y(picture); break;
    case ColourStep::affine:
    case ColourStep::perspective: return warp(picture, work);
    case ColourStep::begin_mix:
    case ColourStep::begin_chain:
    case ColourStep::add_to_mix:
    case ColourStep::end_mix: return mix(step, picture, amount);
  }
  return true;
}

/// With room behind it for whole vectors. nullptr when there is no memory.
const std::uint8_t* Colourist::copied(const Picture& picture) noexcept {
  std::uint8_t* const copy = copy_.reserve(bytes_of(picture) + ColourLoops::slack);
  if (copy != nullptr) std::memcpy(copy, picture.data, bytes_of(picture));
  return copy;
}

bool Colourist::sharpen(const Picture& picture, double factor) noexcept {
  if (picture.height <= 2 || picture.width <= 2) return true;
  const std::uint8_t* const copy = copied(picture);
  if (copy == nullptr) return false;
  const ColourLoops& loops = *loops_;
  const auto weight = static_cast<float>(1.0 - factor);
  const std::size_t channels = channels_of(picture);
  const std::size_t stride = picture.row_bytes();
  const std::size_t count = stride - 2 * channels;
  for (std::size_t y = 1; y + 1 < picture.height; ++y) {
    const std::uint8_t* const first = copy + (y - 1) * stride + channels;
    const std::uint8_t* const rows[3] = {first, first + stride, first + 2 * stride};
    std::uint8_t* const out = picture.row(y) + channels;
    const std::size_t done = loops.sharpen(rows, channels, out, count, weight);
    const std::uint8_t* const rest[3] = {rows[0] + done, rows[1] + done, rows[2] + done};
    fastio::sharpen(rest, channels, out + done, count - done, weight);
  }
  return true;
}

bool Colourist::blur(const Picture& picture, const ColourWork& work) noexcept {
  const auto across = static_cast<std::size_t>(work.amounts[0]);
  const auto down = static_cast<std::size_t>(work.amounts[1]);
  const std::size_t channels = channels_of(picture);
  const std::size_t stride = picture.row_bytes();
  const std::size_t beside = across / 2 * channels;
  const std::size_t floats = across + down + stride + 2 * beside + ColourLoops::slack;
  const std::size_t pointers = down * sizeof(const std::uint8_t*);
  std::uint8_t* const memory =
      rows_.reserve(pointers + floats * sizeof(float) + stride + ColourLoops::slack);
  const std::uint8_t* const copy = copied(picture);
  if (memory == nullptr || copy == nullptr) return false;
  const auto rows = reinterpret_cast<const std::uint8_t**>(memory);
  auto* const x_weights = reinterpret_cast<float*>(memory + pointers);
  float* const y_weights = x_weights + across;
  float* const line = y_weights + down;
  auto* const out =
      reinterpret_cast<std::uint8_t*>(line + stride + 2 * beside + ColourLoops::slack);
  gaussian(work.amounts[2], across, x_weights);
  gaussian(work.amounts[3], down, y_weights);
  const ColourLoops& loops = *loops_;
  for (std::size_t y = 0; y < picture.height; ++y) {
    for (std::size_t k = 0; k < down; ++k) {
      const auto above = static_cast<std::ptrdiff_t>(y + k) - static_cast<std::ptrdiff_t>(down / 2);
      rows[k] = copy + mirrored(above, picture.height) * stride;
    }
    loops.blur_down(rows, y_weights, down, line + beside, stride);
    for (std::size_t x = 1; x <= across / 2; ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        float* const first = line + beside + c;
        float* const last = first + stride - channels;
        *(first - x * channels) = first[x * channels];
        last[x * channels] = *(last - x * channels);
      }
    }
    loops.blur_along(line, channels, x_weights, across, out, stride);
    std::memcpy(picture.row(y), out, stride);
  }
  return true;
}

bool Colourist::add_noise(const Picture& picture, const ColourWork& work) noexcept {
  constexpr std::size_t signed_quantiles = 2 * count_of_quantiles;
  const std::array look{static_cast<float>(work.amounts[0]), static_cast<float>(work.amounts[1])};
  auto* const levels =
      reinterpret_cast<std::int16_t*>(noise_.reserve(signed_quantiles * sizeof(std::int16_t)));
  if (levels == nullptr) return false;
  if (noise_look_ != look) {
    const auto& quantiles = normal_quantiles();
    for (std::size_t i = 0; i < signed_quantiles; ++i) {
      const float size = quantiles[i % count_of_quantiles];
      const float noise = look[0] + (i < count_of_quantiles ? size : -size) * look[1];
      levels[i] = static_cast<std::int16_t>(std::clamp(noise, -white, white));  // cut towards 0
    }
    noise_look_ = look;
  }
  std::array<std::uint32_t, 2> seed{};
  for (std::size_t i = 0; i < 2; ++i) {
    seed[i] = static_cast<std::uint32_t>(work.amounts[2 + 2 * i]) << 16 |
              static_cast<std::uint32_t>(work.amounts[3 + 2 * i]);
  }
  const auto changed = [&](std::uint8_t value, std::uint32_t place) {
    return static_cast<std::uint8_t>(std::clamp(value + levels[place], 0, 255));
  };
  const std::size_t count = bytes_of(picture);
  std::uint8_t* const values = picture.data;
  for (std::size_t i = 0; i + 1 < count; i += 2) {
    const std::uint32_t bits = noise_bits(static_cast<std::uint32_t>(i / 2), seed);
    values[i] = changed(values[i], bits & 0xFFFF);
    values[i + 1] = changed(values[i + 1], bits >> 16);
  }
  if (count % 2 == 1) {
    const std::uint32_t bits = noise_bits(static_cast<std::uint32_t>(count / 2), seed);
    values[count - 1] = changed(values[count - 1], bits & 0xFFFF);
  }
  return true;
}

bool Colourist::flip_x(const Picture& picture) noexcept {
  const std::uint8_t* const copy = copied(picture);
  if (copy == nullptr) return false;
  mirror_rows(picture.channels, level_)({copy, picture.row_bytes()},
                                        {picture.data, picture.row_bytes()}, picture.width,
                                        picture.height);
  return true;
}

bool Colourist::warp(const Picture& picture, const ColourWork& work) noexcept {
  const std::uint8_t* const copy = copied(picture);
  const std::size_t places = picture.width + ColourLoops::slack;
  auto* const x = reinterpret_cast<float*>(rows_.reserve(2 * places * sizeof(float)));
  if (copy == nullptr || x == nullptr) return false;
  float* const y = x + places;
  const ColourLoops& loops = *loops_;
  const WarpedPixel pixel(copy, picture, work);
  const std::size_t channels = channels_of(picture);
  WarpRow row = first_row(work, picture.height, picture.width);
  for (std::size_t line = 0; line < picture.height; ++line, ++row.y) {
    loops.places(row, x, y, picture.width);
    std::uint8_t* out = picture.row(line);
    for (std::size_t i = 0; i < picture.width; ++i, out += channels) {
      if (row.rounds) {
        pixel.nearest(x[i], y[i], out);
      } else {
        pixel.bilinear(x[i], y[i], out);
      }
    }
  }
  return true;
}

bool Colourist::mix(ColourStep step, const Picture& picture, double weight) noexcept {
  const std::size_t size = bytes_of(picture);
  std::uint8_t* const kept = kept_.reserve(size);
  auto* const sums = reinterpret_cast<float*>(sums_.reserve(size * sizeof(float)));
  if (kept == nullptr || sums == nullptr) return false;
  const auto share = static_cast<float>(weight);
  std::uint8_t* const values = picture.data;
  if (step == ColourStep::begin_mix) {
    std::memcpy(kept, values, size);
    for (std::size_t i = 0; i < size; ++i) sums[i] = static_cast<float>(values[i]) * share;
  } else if (step == ColourStep::begin_chain) {
    std::memcpy(values, kept, size);
  } else if (step == ColourStep::add_to_mix) {
    for (std::size_t i = 0; i < size; ++i) sums[i] += static_cast<float>(values[i]) * share;
  } else {
    for (std::size_t i = 0; i < size; ++i) values[i] = as_byte(sums[i]);
  }
  return true;
}

}  // namespace fastio
