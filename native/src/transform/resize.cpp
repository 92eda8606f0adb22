// The weights of resampling: the same sequence of double operations as Pillow's, because they are
// rounded to integers in the end and must come out the same.

#include "transform/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fastio {
namespace {

/// A kernel and the distance from the centre at which it ends.
struct Kernel {
  double (*weight)(double);
  double support;
};

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double box(double x) {
  return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) {
  return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

double hamming(double x) {
  x = std::abs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  // Pillow has these two constants in single precision.
  return std::sin(x) / x * (double{0.54F} + double{0.46F} * std::cos(x));
}

Kernel kernel_of(Filter filter) noexcept {
  switch (filter) {
    case Filter::bicubic: return {bicubic, 2.0};
    case Filter::box: return {box, 0.5};
    case Filter::lanczos: return {lanczos, 3.0};
    case Filter::hamming: return {hamming, 1.0};
    case Filter::bilinear:
    case Filter::nearest: break;
  }
  return {bilinear, 1.0};
}

/// To fixed point, halves away from zero.
std::int32_t rounded(double weight) noexcept {
  const double scaled = weight * (1 << Taps::precision);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

}  // namespace

bool Taps::reserve(std::size_t count, std::size_t most) noexcept {
  count_ = count;
  most_ = most;
  auto* memory = reinterpret_cast<std::uint32_t*>(
      memory_.reserve((2 + most_) * count * sizeof(std::uint32_t)));
  if (memory == nullptr) return false;
  starts_ = memory;
  lengths_ = memory + count;
  weights_ = reinterpret_cast<std::int32_t*>(memory + 2 * count);
  return true;
}

bool Taps::prepare(const Axis& axis, Filter filter) noexcept {
  const auto count = static_cast<std::size_t>(axis.count);
  if (filter == Filter::nearest) {
    if (!reserve(count, 1)) return false;
    prepare_nearest(axis);
    set_range();
    return true;
  }
  const Kernel kernel = kernel_of(filter);
  const double scale = axis.size / axis.virtual_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kernel.support * filter_scale;
  const double inverse = 1.0 / filter_scale;
  // Not more than there are pixels.
  const auto most = static_cast<std::size_t>(
      std::min(std::ceil(support) * 2 + 1, static_cast<double>(axis.high - axis.low)));
  auto* exact = reinterpret_cast<double*>(kernel_.reserve(most * sizeof(double)));
  if (exact == nullptr || !reserve(count, most)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t wanted = axis.mirrored ? count - 1 - i : i;
    const double centre = axis.start + (axis.first + static_cast<double>(wanted) + 0.5) * scale;
    const int low = std::max(static_cast<int>(centre - support + 0.5), axis.low);
    const int high = std::min(static_cast<int>(centre + support + 0.5), axis.high);
    const auto length = static_cast<std::size_t>(high - low);
    double sum = 0.0;
    for (std::size_t j = 0; j < length; ++j) {
      exact[j] = kernel.weight((static_cast<double>(j) + low - centre + 0.5) * inverse);
      sum += exact[j];
    }
    for (std::size_t j = 0; j < length; ++j) {
      if (sum != 0.0) exact[j] /= sum;
    }
    store(i, static_cast<std::size_t>(low), {exact, length});
  }
  set_range();
  return true;
}

/// Rounds the weights of position i, and leaves out those at the ends that are 0.
void Taps::store(std::size_t i, std::size_t start, std::span<const double> exact) noexcept {
  while (exact.size() > 1 && rounded(exact.back()) == 0) exact = exact.first(exact.size() - 1);
  while (exact.size() > 1 && rounded(exact.front()) == 0) {
    exact = exact.subspan(1);
    ++start;
  }
  std::transform(exact.begin(), exact.end(), weights_ + i * most_, rounded);
  starts_[i] = static_cast<std::uint32_t>(start);
  lengths_[i] = static_cast<std::uint32_t>(exact.size());
}

void Taps::prepare_nearest(const Axis& axis) noexcept {
  const double scale = axis.size / axis.virtual_size;
  double centre = axis.start + scale * 0.5;
  // Pillow sums up the steps, so all positions before the wanted ones are gone through too.
  for (std::int32_t position = 0; position < axis.first; ++position) centre += scale;
  for (std::size_t wanted = 0; wanted < count_; ++wanted, centre += scale) {
    const std::size_t i = axis.mirrored ? count_ - 1 - wanted : wanted;
    starts_[i] = static_cast<std::uint32_t>(
        std::clamp(static_cast<std::int32_t>(centre), axis.low, axis.high - 1));
    lengths_[i] = 1;
    weights_[i * most_] = 1 << precision;
  }
}

void Taps::set_range() noexcept {
  low_ = starts_[0];
  high_ = 0;
  longest_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    low_ = std::min<std::size_t>(low_, starts_[i]);
    high_ = std::max<std::size_t>(high_, starts_[i] + lengths_[i]);
    longest_ = std::max<std::size_t>(longest_, lengths_[i]);
  }
}

bool Taps::pack() noexcept {
  pair_count_ = (longest_ + 1) / 2;
  const std::size_t pair_bytes = count_ * pair_count_ * sizeof(TapPair);
  std::uint8_t* memory = packed_.reserve(pair_bytes + count_ * sizeof(std::uint32_t));
  if (memory == nullptr) return false;
  pairs_ = reinterpret_cast<TapPair*>(memory);
  pair_starts_ = reinterpret_cast<std::uint32_t*>(memory + pair_bytes);
  const std::size_t latest = high_ - std::min(high_ - low_, 2 * pair_count_);
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t start = std::min<std::size_t>(starts_[i], latest);
    const std::size_t shift = starts_[i] - start;
    TapPair* pairs = pairs_ + i * pair_count_;
    std::fill(pairs, pairs + pair_count_, TapPair{});
    for (std::size_t j = 0; j < lengths_[i]; ++j) {
      const std::int32_t weight = weights_[i * most_ + j];
      TapPair& pair = pairs[(j + shift) / 2];
      pair.high[(j + shift) % 2] = static_cast<std::int16_t>(weight >> half_bits);
      pair.low[(j + shift) % 2] = static_cast<std::int16_t>(weight & ((1 << half_bits) - 1));
    }
    pair_starts_[i] = static_cast<std::uint32_t>(start);
  }
  return true;
}

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
