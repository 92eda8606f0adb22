// Plans, resampling and mirrored rows: faults are named, SIMD equals scalar, windows equal parts
// of the whole, and nothing outside is written.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "transform/plan.h"
#include "transform/resize.h"
#include "transform/rows.h"

namespace {

using fastio::Axis;
using fastio::Filter;
using fastio::PassOrder;
using fastio::Plan;
using fastio::SimdLevel;
using Pixels = std::vector<std::uint8_t>;

std::mt19937 generator(1);

std::int32_t between(std::int32_t first, std::int32_t last) {
  return std::uniform_int_distribution<std::int32_t>(first, last)(generator);
}

Pixels noise(std::size_t size) {
  Pixels pixels(size);
  for (auto& value : pixels) value = static_cast<std::uint8_t>(between(0, 255));
  return pixels;
}

void test_plans() {
  constexpr Plan good{1, 2, 30, 40, 20, 10, 4, 5, 16, 5, 0, 2, 1};
  EXPECT(fastio::plan_fault(good, 7, 16) == nullptr);
  EXPECT(fastio::plan_fault(good, 6, 16) != nullptr);
  EXPECT(fastio::plan_fault(good, 7, 15) != nullptr);
  constexpr std::array<std::int32_t, 5> hostile{-1, INT32_MIN, INT32_MAX, 0, 1 << 21};
  for (std::size_t column = 0; column < 13; ++column) {
    int refused = 0;
    for (const std::int32_t value : hostile) {
      std::array<std::int32_t, 13> numbers{1, 2, 30, 40, 20, 10, 4, 5, 16, 5, 0, 2, 1};
      numbers[column] = value;
      const Plan plan{numbers[0],  numbers[1],  numbers[2], numbers[3], numbers[4],
                      numbers[5],  numbers[6],  numbers[7], numbers[8], numbers[9],
                      numbers[10], numbers[11], numbers[12]};
      refused += fastio::plan_fault(plan, 7, 16) != nullptr;
    }
    EXPECT(refused >= 4);  // all but 0, where that is allowed
  }
}

/// What this machine can do beyond plain code.
std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> levels;
  for (const auto level : {SimdLevel::neon, SimdLevel::sse41, SimdLevel::avx2, SimdLevel::avx512}) {
    if (level <= fastio::simd_level()) levels.push_back(level);
  }
  return levels;
}

/// One resampling, from a copy of exactly the region needed into memory of exactly the size.
Pixels resampled(const Axis& x, const Axis& y, Filter filter, int channels, const Pixels& picture,
                 SimdLevel level, PassOrder order = PassOrder::cheaper_first) {
  fastio::Resizer resizer;
  EXPECT(resizer.prepare(x, y, filter, order));
  const fastio::Region region = resizer.region();
  EXPECT(region.x + region.width <= static_cast<std::size_t>(x.high));
  EXPECT(region.y + region.height <= static_cast<std::size_t>(y.high));
  const auto pixel_bytes = static_cast<std::size_t>(channels);
  const std::size_t stride = region.width * pixel_bytes;
  const std::size_t size = region.height * stride;
  const auto copy = std::make_unique<std::uint8_t[]>(size + fastio::Resizer::slack);
  for (std::size_t row = 0; row < region.height; ++row) {
    const std::size_t from =
        ((region.y + row) * static_cast<std::size_t>(x.high) + region.x) * pixel_bytes;
    std::copy_n(picture.data() + from, stride, copy.get() + row * stride);
  }
  const std::size_t out_stride = static_cast<std::size_t>(x.count) * pixel_bytes;
  const std::size_t out_size = out_stride * static_cast<std::size_t>(y.count);
  const auto out = std::make_unique<std::uint8_t[]>(out_size);
  EXPECT(resizer.run({copy.get(), stride}, channels, {out.get(), out_stride}, level));
  return {out.get(), out.get() + out_size};
}

Axis axis_of(std::int32_t size, std::int32_t virtual_size) {
  return {0.0, static_cast<double>(size), 0, size, virtual_size, 0, virtual_size, false};
}

void test_resizing(int channels) {
  for (int repeat = 0; repeat < 400; ++repeat) {
    const std::int32_t width = between(1, 70);
    const std::int32_t height = between(1, 70);
    const auto pixel_bytes = static_cast<std::size_t>(channels);
    const auto picture = noise(static_cast<std::size_t>(width * height) * pixel_bytes);
    const auto filter = static_cast<Filter>(between(0, 5));
    Axis x = axis_of(width, between(1, 70));
    Axis y = axis_of(height, between(1, 70));
    const Pixels whole = resampled(x, y, filter, channels, picture, SimdLevel::none);
    for (const SimdLevel level : levels()) {
      EXPECT(whole == resampled(x, y, filter, channels, picture, level));
    }

    const auto whole_width = static_cast<std::size_t>(x.virtual_size);
    x.first = between(0, x.virtual_size - 1);
    x.count = between(1, x.virtual_size - x.first);
    x.mirrored = between(0, 1) == 1;
    y.first = between(0, y.virtual_size - 1);
    y.count = between(1, y.virtual_size - y.first);
    Pixels part;
    for (std::int32_t row = 0; row < y.count; ++row) {
      for (std::int32_t i = 0; i < x.count; ++i) {
        const std::int32_t column = x.first + (x.mirrored ? x.count - 1 - i : i);
        const std::size_t from = static_cast<std::size_t>(y.first + row) * whole_width +
                                 static_cast<std::size_t>(column);
        const std::uint8_t* pixel = whole.data() + from * pixel_bytes;
        part.insert(part.end(), pixel, pixel + channels);
      }
    }
    EXPECT(part == resampled(x, y, filter, channels, picture, SimdLevel::none));
    for (const SimdLevel level : levels()) {
      EXPECT(part == resampled(x, y, filter, channels, picture, level));
    }
  }
}

void test_order_of_passes(int channels) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    const std::int32_t width = between(1, 70);
    const std::int32_t height = between(1, 70);
    const std::int32_t new_width = between(1, 70);
    const std::int32_t new_height = between(1, 70);
    const auto pixel_bytes = static_cast<std::size_t>(channels);
    const auto picture = noise(static_cast<std::size_t>(width * height) * pixel_bytes);
    const auto filter = static_cast<Filter>(between(0, 5));
    for (const PassOrder order : {PassOrder::horizontal_first, PassOrder::cheaper_first}) {
      const bool by_columns = order == PassOrder::cheaper_first && height > new_height &&
                              height - new_height > 2 * (width - new_width);
      const std::int32_t mid_width = by_columns ? width : new_width;
      const std::int32_t mid_height = by_columns ? new_height : height;
      const Pixels middle = resampled(axis_of(width, mid_width), axis_of(height, mid_height),
                                      filter, channels, picture, SimdLevel::none);
      const Pixels steps = resampled(axis_of(mid_width, new_width), axis_of(mid_height, new_height),
                                     filter, channels, middle, SimdLevel::none);
      const auto at_once = [&](SimdLevel level) {
        return resampled(axis_of(width, new_width), axis_of(height, new_height), filter, channels,
                         picture, level, order);
      };
      EXPECT(steps == at_once(SimdLevel::none));
      for (const SimdLevel level : levels()) EXPECT(steps == at_once(level));
    }
  }
}

void test_mirrored_rows(int channels) {
  constexpr std::size_t rows = 3;
  for (std::size_t pixels = 1; pixels < 80; ++pixels) {
    const std::size_t stride = pixels * static_cast<std::size_t>(channels);
    const std::size_t size = rows * stride;
    const Pixels values = noise(size);
    const auto in = std::make_unique<std::uint8_t[]>(size);
    std::copy(values.begin(), values.end(), in.get());
    const auto scalar = std::make_unique<std::uint8_t[]>(size);
    const auto simd = std::make_unique<std::uint8_t[]>(size);
    const auto mirror = [&](SimdLevel level, std::uint8_t* out) {
      fastio::mirror_rows(channels, level)({in.get(), stride}, {out, stride}, pixels, rows);
    };
    mirror(SimdLevel::none, scalar.get());
    mirror(fastio::simd_level(), simd.get());
    EXPECT(std::equal(scalar.get(), scalar.get() + size, simd.get()));
    for (std::size_t row = 1; row <= rows; ++row) {
      EXPECT(scalar[(row - 1) * stride] == in[row * stride - static_cast<std::size_t>(channels)]);
    }
  }
}

void test_split_rows(int channels, bool mirrored) {
  constexpr std::size_t rows = 3;
  const auto count = static_cast<std::size_t>(channels);
  for (std::size_t pixels = 1; pixels < 80; ++pixels) {
    const Pixels values = noise(rows * pixels * count);
    const std::size_t plane = rows * pixels + 5;
    const auto split = [&](SimdLevel level) {
      Pixels planes(count * plane, 7);
      fastio::split_rows(channels, level)({values.data(), pixels * count},
                                          {planes.data(), pixels, plane}, pixels, rows, mirrored);
      return planes;
    };
    const Pixels planes = split(SimdLevel::none);
    EXPECT(planes == split(fastio::simd_level()));
    if (!mirrored) {
      const auto join = [&](SimdLevel level) {
        Pixels joined(values.size() + 5, 7);
        fastio::join_rows(channels, level)({planes.data(), pixels, plane},
                                           {joined.data(), pixels * count}, pixels, rows);
        return joined;
      };
      const Pixels joined = join(fastio::simd_level());
      EXPECT(joined == join(SimdLevel::none));
      EXPECT(std::equal(values.begin(), values.end(), joined.begin()));
      EXPECT(std::all_of(joined.end() - 5, joined.end(), [](auto byte) { return byte == 7; }));
    }
    for (std::size_t c = 0; c < count; ++c) {
      for (std::size_t i = 0; i < rows * pixels; ++i) {
        const std::size_t x = i % pixels;
        const std::size_t from = mirrored ? i - x + (pixels - 1 - x) : i;
        EXPECT(planes[c * plane + i] == values[from * count + c]);
      }
      for (std::size_t i = rows * pixels; i < plane; ++i) EXPECT(planes[c * plane + i] == 7);
    }
  }
}

}  // namespace

int main() {
  test_plans();
  for (const int channels : {1, 3, 4}) {
    test_resizing(channels);
    test_order_of_passes(channels);
    test_mirrored_rows(channels);
    test_split_rows(channels, false);
    test_split_rows(channels, true);
  }
  return failures;
}
