// The SIMD filters give the same bytes as the scalar ones and stay inside their rows.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "png/unfilter.h"

namespace {

using fastio::SimdLevel;
using Buffer = std::vector<std::uint8_t>;

constexpr std::size_t guard = 16;
constexpr std::uint8_t untouched = 0xA5;

Buffer filtered(std::size_t rows, std::size_t row_bytes, std::mt19937& random) {
  Buffer data(rows * (row_bytes + 1) + guard);
  for (auto& byte : data) byte = static_cast<std::uint8_t>(random());
  // Runs of zeros and of equal rows, as in masks.
  for (std::size_t y = 2; y < rows; ++y) {
    const std::size_t first = y * (row_bytes + 1) + 1 + random() % row_bytes;
    std::fill(data.begin() + static_cast<std::ptrdiff_t>(first),
              data.begin() + static_cast<std::ptrdiff_t>((y + 1) * (row_bytes + 1)), 0);
  }
  for (std::size_t y = 0; y < rows; ++y) data[y * (row_bytes + 1)] %= 5;
  return data;
}

void test_levels_agree() {
  std::mt19937 random(1);
  for (const std::size_t pixel : {1, 2, 3, 4, 6, 8}) {
    for (std::size_t width = 1; width < 80; ++width) {
      const std::size_t rows = 9;
      const std::size_t row_bytes = width * pixel;
      Buffer data = filtered(rows, row_bytes, random);
      const Buffer zeros(row_bytes + guard);
      const fastio::FilteredRows in{data.data(), rows, row_bytes, pixel};
      Buffer scalar(rows * row_bytes + guard, untouched);
      Buffer simd = scalar;
      EXPECT(fastio::unfilter(in, zeros.data(), scalar.data(), SimdLevel::none));
      EXPECT(fastio::unfilter(in, zeros.data(), simd.data(), fastio::simd_level()));
      EXPECT(scalar == simd);
      for (std::size_t i = 0; i < guard; ++i) EXPECT(simd[rows * row_bytes + i] == untouched);

      EXPECT(fastio::unfilter(in, zeros.data(), data.data(), fastio::simd_level()));  // in place
      data.resize(rows * row_bytes);
      simd.resize(rows * row_bytes);
      EXPECT(data == simd);
    }
  }
}

void test_unknown_filter_is_refused() {
  const Buffer data(4 + guard, 5);
  const Buffer zeros(3 + guard);
  Buffer out(3 + guard);
  const fastio::FilteredRows in{data.data(), 1, 3, 3};
  EXPECT(!fastio::unfilter(in, zeros.data(), out.data(), SimdLevel::none));
}

}  // namespace

int main() {
  test_levels_agree();
  test_unknown_filter_is_refused();
  return failures;
}
