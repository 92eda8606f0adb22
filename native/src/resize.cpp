#include "fastio/resize.h"

#include <algorithm>

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

void horizontal_row(const Taps& taps, int channels, const std::uint8_t* row,
                    std::uint8_t* out) noexcept {
  switch (channels) {
    case 1: horizontal_row<1>(taps, row, out); break;
    case 3: horizontal_row<3>(taps, row, out); break;
    default: horizontal_row<4>(taps, row, out); break;
  }
}

/// One row of `bytes` from rows `stride` apart, the first of which is input row taps.low().
void vertical_row(const Taps& taps, std::size_t i, const PixelView& in, std::size_t bytes,
                  std::uint8_t* out) noexcept {
  const std::uint8_t* first = in.data + (taps.start(i) - taps.low()) * in.stride;
  const std::int32_t* weights = taps.weights(i);
  for (std::size_t x = 0; x < bytes; ++x) {
    std::uint32_t sum = half;
    for (std::size_t j = 0; j < taps.length(i); ++j) {
      sum += static_cast<std::uint32_t>(weights[j] * first[j * in.stride + x]);
    }
    out[x] = to_pixel(sum);
  }
}

}  // namespace

bool Resizer::prepare(const Axis& x, const Axis& y, Filter filter) noexcept {
  return x_.prepare(x, filter) && y_.prepare(y, filter);
}

Region Resizer::region() const noexcept {
  return {x_.low(), y_.low(), x_.high() - x_.low(), y_.high() - y_.low()};
}

bool Resizer::run(const PixelView& in, int channels, const PixelTarget& out, SimdLevel) noexcept {
  const std::size_t row_bytes = x_.count() * static_cast<std::size_t>(channels);
  const std::size_t rows = y_.high() - y_.low();
  std::uint8_t* between = between_.reserve(rows * row_bytes);
  if (between == nullptr) return false;
  for (std::size_t y = 0; y < rows; ++y) {
    horizontal_row(x_, channels, in.data + y * in.stride, between + y * row_bytes);
  }
  for (std::size_t i = 0; i < y_.count(); ++i) {
    vertical_row(y_, i, {between, row_bytes}, row_bytes, out.data + i * out.stride);
  }
  return true;
}

}  // namespace fastio
