#include "fastio/transformer.h"

#include <algorithm>
#include <cstring>

#include "fastio/mirror.h"
#include "fastio/planes.h"

namespace fastio {
namespace {

std::size_t unsign(std::int32_t value) noexcept {
  return static_cast<std::size_t>(value);
}

/// value * alpha / 255, rounded.
std::uint8_t multiplied(unsigned value, unsigned alpha) noexcept {
  const unsigned product = value * alpha + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

void premultiply_row(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  for (std::size_t i = 0; i < 4 * pixels; i += 4) {
    for (std::size_t c = 0; c < 3; ++c) out[i + c] = multiplied(in[i + c], in[i + 3]);
    out[i + 3] = in[i + 3];
  }
}

void unpremultiply_row(std::uint8_t* row, std::size_t pixels) noexcept {
  for (std::size_t i = 0; i < 4 * pixels; i += 4) {
    const unsigned alpha = row[i + 3];
    if (alpha == 0 || alpha == 255) continue;
    for (std::size_t c = 0; c < 3; ++c) {
      row[i + c] = static_cast<std::uint8_t>(std::min(255U, 255U * row[i + c] / alpha));
    }
  }
}

/// Fills `pixels` pixels: what is there is copied behind itself until all is there.
void fill_pixels(const std::array<std::uint8_t, 4>& fill, int channels, std::uint8_t* out,
                 std::size_t pixels) noexcept {
  const auto size = static_cast<std::size_t>(channels);
  const std::size_t bytes = pixels * size;
  if (std::all_of(fill.begin(), fill.begin() + channels, [&](auto c) { return c == fill[0]; })) {
    std::memset(out, fill[0], bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t next = done == 0 ? size : std::min(done, bytes - done);
    std::memcpy(out + done, done == 0 ? fill.data() : out, next);
    done += next;
  }
}

/// The box along one axis of a picture shrunk by a power of 2: its ends lie within pixels.
struct Side {
  double start;  ///< from the first pixel that the box touches
  double size;
  std::int32_t low;  ///< that pixel
  std::int32_t pixels;
};

Side side_of(std::int32_t start, std::int32_t size, std::int32_t shrink) noexcept {
  const std::int32_t low = start / shrink;
  const std::int32_t high = (start + size + shrink - 1) / shrink;
  return {static_cast<double>(start) / shrink - low, static_cast<double>(size) / shrink, low,
          high - low};
}

/// The whole virtual picture of an axis is the box.
Axis axis_of(const Side& box, std::int32_t virtual_size, std::int32_t first, std::int32_t count,
             bool mirrored) noexcept {
  return {box.start, box.size, 0, box.pixels, virtual_size, first, count, mirrored};
}

/// Rows of pixels as they are. For those of small pictures a call of memcpy costs more than its
/// work: they are copied 16 bytes at a time, the last of which may overlap.
void copy_rows(const PixelView& in, const PixelTarget& out, std::size_t bytes,
               std::size_t rows) noexcept {
  constexpr std::size_t block = 16;
  constexpr std::size_t worth_a_call = 256;
  for (std::size_t y = 0; y < rows; ++y) {
    const std::uint8_t* from = in.data + y * in.stride;
    std::uint8_t* to = out.data + y * out.stride;
    if (bytes < block || bytes >= worth_a_call) {
      std::memcpy(to, from, bytes);
      continue;
    }
    for (std::size_t x = 0; x + block <= bytes; x += block) std::memcpy(to + x, from + x, block);
    std::memcpy(to + bytes - block, from + bytes - block, block);
  }
}

}  // namespace

void fill_row(const TransformOptions& options, const Picture& out) noexcept {
  const std::size_t pixels = out.height * out.width;
  if (!options.planar) {
    fill_pixels(options.fill, out.channels, out.data, pixels);
    return;
  }
  for (std::size_t c = 0; c < static_cast<std::size_t>(out.channels); ++c) {
    std::memset(out.data + c * pixels, options.fill[c], pixels);
  }
}

void split_channels(const Picture& picture, std::uint8_t* planes) noexcept {
  const std::size_t pixels = picture.height * picture.width;
  split_rows(picture.channels, simd_level())({picture.data, 0}, {planes, 0, pixels}, pixels, 1);
}

std::size_t shrink_of(const Plan& plan, const TransformOptions& options) noexcept {
  if (!options.fast || options.filter == Filter::nearest) return 1;
  constexpr std::int32_t most = 8;   // that libjpeg-turbo has fast code for, with 4 and 2
  constexpr std::int32_t spare = 2;  // at 1 there are errors of 46 levels, at 2 few of 8
  std::int32_t shrink = most;
  while (shrink > 1 && (plan.box_w < spare * shrink * plan.virtual_w ||
                        plan.box_h < spare * shrink * plan.virtual_h)) {
    shrink /= 2;
  }
  return unsign(shrink);
}

bool Transformer::begin(const Plan& plan, const TransformOptions& options,
                        std::size_t shrink) noexcept {
  plan_ = plan;
  options_ = options;
  const auto divisor = static_cast<std::int32_t>(shrink);
  const Side x = side_of(plan.box_x, plan.box_w, divisor);
  const Side y = side_of(plan.box_y, plan.box_h, divisor);
  if (!plan.resamples()) {
    region_ = {unsign(plan.window_x), unsign(plan.window_y), unsign(plan.window_w),
               unsign(plan.window_h)};
  } else {
    const bool prepared =
        resizer_.prepare(axis_of(x, plan.virtual_w, plan.window_x, plan.window_w, plan.flip == 1),
                         axis_of(y, plan.virtual_h, plan.window_y, plan.window_h, false),
                         options.filter, options.order);
    if (!prepared) return false;
    region_ = resizer_.region();
  }
  region_.x += unsign(x.low);
  region_.y += unsign(y.low);
  return true;
}

bool Transformer::finish(const PixelView& in, int in_channels, const Picture& out) noexcept {
  const std::size_t window_width = unsign(plan_.window_w);
  const std::size_t window_height = unsign(plan_.window_h);
  if (window_width < out.width || window_height < out.height) fill_row(options_, out);
  const std::size_t left =
      plan_.flip == 1 ? out.width - unsign(plan_.place_x) - window_width : unsign(plan_.place_x);
  if (!options_.planar && !options_.grey) {
    const auto channels = static_cast<std::size_t>(out.channels);
    return window(in, out.channels,
                  {out.row(unsign(plan_.place_y)) + left * channels, out.row_bytes()});
  }
  Picture target = out;
  target.data += options_.planar ? unsign(plan_.place_y) * out.width + left
                                 : unsign(plan_.place_y) * out.row_bytes() +
                                       left * static_cast<std::size_t>(out.channels);
  if (!options_.grey && !plan_.resamples() && plan_.flip == 0) {  // the window is what was read
    place(in, in_channels, target);
    return true;
  }
  const std::size_t stride = window_width * static_cast<std::size_t>(in_channels);
  std::uint8_t* pixels = window_.reserve(window_height * stride);
  if (pixels == nullptr || !window(in, in_channels, {pixels, stride})) return false;
  place({pixels, stride}, in_channels, target);
  return true;
}

bool Transformer::window(const PixelView& in, int channels, const PixelTarget& out) noexcept {
  if (plan_.resamples()) {
    if (channels == 4 && options_.filter != Filter::nearest) return premultiplied(in, out);
    return resizer_.run(in, channels, out, simd_level());
  }
  if (plan_.flip == 1) {
    mirror_rows(channels, simd_level())(in, out, region_.width, region_.height);
  } else {
    copy_rows(in, out, region_.width * static_cast<std::size_t>(channels), region_.height);
  }
  return true;
}

bool Transformer::premultiplied(const PixelView& in, const PixelTarget& out) noexcept {
  const std::size_t stride = region_.width * 4;
  std::uint8_t* pixels = premultiplied_.reserve(region_.height * stride + Resizer::slack);
  if (pixels == nullptr) return false;
  for (std::size_t y = 0; y < region_.height; ++y) {
    premultiply_row(in.data + y * in.stride, pixels + y * stride, region_.width);
  }
  if (!resizer_.run({pixels, stride}, 4, out, simd_level())) return false;
  for (std::size_t y = 0; y < unsign(plan_.window_h); ++y) {
    unpremultiply_row(out.data + y * out.stride, unsign(plan_.window_w));
  }
  return true;
}

/// `out.data` is where the window's first pixel goes.
void Transformer::place(const PixelView& in, int in_channels, const Picture& out) const noexcept {
  const std::size_t width = unsign(plan_.window_w);
  const auto read = static_cast<std::size_t>(in_channels);
  const auto channels = static_cast<std::size_t>(out.channels);
  const std::size_t plane = out.height * out.width;
  if (!options_.grey) {  // planar, or rows would have been written at once
    split_rows(in_channels, simd_level())(in, {out.data, out.width, plane}, width,
                                          unsign(plan_.window_h));
    return;
  }
  for (std::size_t y = 0; y < unsign(plan_.window_h); ++y) {
    auto* row = const_cast<std::uint8_t*>(in.data) + y * in.stride;
    if (read == 3) rgb_to_grey(row, row, width);
    for (std::size_t c = 0; c < channels; ++c) {
      if (options_.planar) {
        std::memcpy(out.data + c * plane + y * out.width, row, width);
      } else {
        std::uint8_t* to = out.data + y * out.row_bytes() + c;
        for (std::size_t x = 0; x < width; ++x) to[x * channels] = row[x];
      }
    }
  }
}

}  // namespace fastio
