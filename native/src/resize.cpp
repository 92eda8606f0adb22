#include "fastio/resize.h"

#include <algorithm>

#include "resize_passes.h"

namespace fastio {
namespace {

/// A sum of weighted pixels as a pixel. Sums wrap around on the way, but end within 32 bits.
std::uint8_t to_pixel(std::uint32_t sum) noexcept {
  return static_cast<std::uint8_t>(
      std::clamp(static_cast<std::int32_t>(sum) >> Taps::precision, 0, 255));
}

constexpr std::uint32_t half = 1U << (Taps::precision - 1);

/// One row: `row` is input position taps.low().
template <std::size_t channels>
void horizontal_row(const Taps& taps, const std::uint8_t* row, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < taps.count(); ++i) {
    const std::int32_t* weights = taps.weights(i);
    const std::uint8_t* pixel = row + (taps.start(i) - taps.low()) * channels;
    std::uint32_t sums[channels];
    std::fill(sums, sums + channels, half);
    for (std::size_t j = 0; j < taps.length(i); ++j, pixel += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        sums[c] += static_cast<std::uint32_t>(weights[j] * pixel[c]);
      }
    }
    for (std::size_t c = 0; c < channels; ++c) *out++ = to_pixel(sums[c]);
  }
}

template <std::size_t channels>
void horizontal_rows(const Taps& taps, const PixelView& in, std::size_t rows,
                     const PixelTarget& out) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    horizontal_row<channels>(taps, in.data + y * in.stride, out.data + y * out.stride);
  }
}

void horizontal(const Taps& taps, int channels, const PixelView& in, std::size_t rows,
                const PixelTarget& out) noexcept {
  switch (channels) {
    case 1: horizontal_rows<1>(taps, in, rows, out); break;
    case 3: horizontal_rows<3>(taps, in, rows, out); break;
    default: horizontal_rows<4>(taps, in, rows, out); break;
  }
}

void vertical(const Taps& taps, std::size_t bytes, const PixelView& in,
              const PixelTarget& out) noexcept {
  for (std::size_t i = 0; i < taps.count(); ++i) {
    const std::uint8_t* first = in.data + (taps.start(i) - taps.low()) * in.stride;
    const std::int32_t* weights = taps.weights(i);
    std::uint8_t* row = out.data + i * out.stride;
    for (std::size_t x = 0; x < bytes; ++x) {
      std::uint32_t sum = half;
      for (std::size_t j = 0; j < taps.length(i); ++j) {
        sum += static_cast<std::uint32_t>(weights[j] * first[j * in.stride + x]);
      }
      row[x] = to_pixel(sum);
    }
  }
}

const ResizePasses& passes_for([[maybe_unused]] SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx512) return avx512_passes;
  if (level >= SimdLevel::avx2) return avx2_passes;
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon) return neon_passes;
#endif
  return scalar_passes;
}

/// Whether an axis is not simply copied.
bool changes(const Axis& axis) noexcept {
  return axis.mirrored || axis.start != 0.0 || axis.size != axis.virtual_size;
}

/// By how much a side shrinks; negative where it grows.
double shrinkage(const Axis& axis) noexcept {
  return axis.size - axis.virtual_size;
}

}  // namespace

const ResizePasses scalar_passes{horizontal, vertical};

bool Resizer::prepare(const Axis& x, const Axis& y, Filter filter, PassOrder order) noexcept {
  x_changes_ = changes(x);
  y_changes_ = changes(y);
  vertical_first_ =
      order == PassOrder::cheaper_first && shrinkage(y) > 0 && shrinkage(y) > 2 * shrinkage(x);
  return x_.prepare(x, filter) && y_.prepare(y, filter);
}

Region Resizer::region() const noexcept {
  return {x_.low(), y_.low(), x_.high() - x_.low(), y_.high() - y_.low()};
}

bool Resizer::run(const PixelView& in, int channels, const PixelTarget& out,
                  SimdLevel level) noexcept {
  const ResizePasses& passes = passes_for(level);
  if (&passes != &scalar_passes && !(x_.pack() && y_.pack())) return false;
  const auto pixel_bytes = static_cast<std::size_t>(channels);
  const Region needed = region();
  const std::size_t in_bytes = needed.width * pixel_bytes;
  const std::size_t out_bytes = x_.count() * pixel_bytes;
  if (!y_changes_) {
    passes.horizontal(x_, channels, in, needed.height, out);
    return true;
  }
  if (!x_changes_) {
    passes.vertical(y_, out_bytes, in, out);
    return true;
  }
  const std::size_t stride = vertical_first_ ? in_bytes : out_bytes;
  const std::size_t rows = vertical_first_ ? y_.count() : needed.height;
  std::uint8_t* between = between_.reserve(rows * stride + slack);
  if (between == nullptr) return false;
  if (vertical_first_) {
    passes.vertical(y_, in_bytes, in, {between, stride});
    passes.horizontal(x_, channels, {between, stride}, rows, out);
  } else {
    passes.horizontal(x_, channels, in, rows, {between, stride});
    passes.vertical(y_, out_bytes, {between, stride}, out);
  }
  return true;
}

}  // namespace fastio
