// Inks in SIMD: the bytes of the scalar loop, in place too, and nothing beyond the row.
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "jpeg/cmyk.h"

namespace {

using fastio::CmykSpace;
using fastio::SimdLevel;
using Buffer = std::vector<std::uint8_t>;

constexpr std::uint8_t untouched = 0xA5;

void test_levels_agree() {
  std::mt19937 random(1);
  for (const CmykSpace inks : {CmykSpace::cmyk, CmykSpace::ycck}) {
    for (const int channels : {3, 4}) {
      const std::size_t c = static_cast<std::size_t>(channels);
      for (std::size_t width = 0; width < 70; ++width) {
        Buffer in(4 * width);
        for (auto& byte : in) byte = static_cast<std::uint8_t>(random());
        Buffer scalar(c * width + 1, untouched);
        Buffer simd = scalar;
        fastio::cmyk_row(inks, channels, SimdLevel::none)(in.data(), scalar.data(), width);
        fastio::cmyk_row(inks, channels, fastio::simd_level())(in.data(), simd.data(), width);
        EXPECT(scalar == simd);
        EXPECT(simd.back() == untouched);

        fastio::cmyk_row(inks, channels)(in.data(), in.data(), width);
        in.resize(c * width);
        simd.pop_back();
        EXPECT(in == simd);
      }
    }
  }
}

void test_all_products_are_rounded() {
  for (unsigned ink = 0; ink < 256; ++ink) {
    Buffer in;
    for (unsigned black = 0; black < 256; ++black) {
      const auto byte = static_cast<std::uint8_t>(ink);
      in.insert(in.end(), {byte, byte, byte, static_cast<std::uint8_t>(black)});
    }
    Buffer out(3 * 256);
    fastio::cmyk_row(CmykSpace::cmyk, 3)(in.data(), out.data(), 256);
    for (unsigned black = 0; black < 256; ++black) {
      EXPECT(out[3 * black] == (2 * ink * black + 255) / 510);
      EXPECT(out[3 * black + 2] == out[3 * black]);
    }
  }
}

}  // namespace

int main() {
  test_levels_agree();
  test_all_products_are_rounded();
  return failures;
}
