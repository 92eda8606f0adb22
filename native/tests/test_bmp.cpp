// The BMP reader on a small file: its pixels, its regions, and every prefix of it.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "check.h"
#include "decode_region.h"
#include "pictures/pixels.h"

namespace {

using fastio::Status;

// 3 x 2, 24 bits, bottom row first: rows of 9 bytes and 3 of padding.
File picture() {
  File file{'B', 'M', 0, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40,
            0,   0,   0, 3, 0, 0, 0, 2, 0, 0, 0,  1, 0, 24};
  file.resize(54);
  for (std::uint8_t value = 1; value <= 9; ++value) file.push_back(value);
  file.resize(file.size() + 3);
  for (std::uint8_t value = 11; value <= 19; ++value) file.push_back(value);
  return file;
}

constexpr auto decode = decode_region<fastio::ImageKind::bmp>;

void test_regions() {
  File pixels;
  EXPECT(decode(picture(), {0, 0, 3, 2}, 3, pixels) == Status::ok);
  EXPECT((pixels == File{13, 12, 11, 16, 15, 14, 19, 18, 17, 3, 2, 1, 6, 5, 4, 9, 8, 7}));
  EXPECT(decode(picture(), {1, 1, 2, 1}, 4, pixels) == Status::ok);
  EXPECT((pixels == File{6, 5, 4, 255, 9, 8, 7, 255}));
  EXPECT(decode(picture(), {2, 0, 1, 2}, 1, pixels) == Status::ok);
  EXPECT((pixels == File{fastio::luma(19, 18, 17), fastio::luma(9, 8, 7)}));
  EXPECT(decode(picture(), {2, 0, 2, 2}, 3, pixels) == Status::bad_shape);
  EXPECT(decode(picture(), {0, 1, 1, 2}, 3, pixels) == Status::bad_shape);
}

void test_prefixes() {
  File pixels;
  const File file = picture();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const File prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(decode(prefix, {0, 0, 3, 2}, 3, pixels) == Status::truncated);
  }
}

/// All instruction sets give the same for rows of every length, and stay within them.
void test_reorder() {
  for (const std::size_t pixel_bytes : {std::size_t{3}, std::size_t{4}}) {
    for (const std::size_t channels : {std::size_t{3}, std::size_t{4}}) {
      const bool has_alpha = pixel_bytes == 4;
      const fastio::ByteOrder order{pixel_bytes, {2, 1, 0, 3}, has_alpha};
      for (std::size_t pixels = 0; pixels < 40; ++pixels) {
        const auto in = std::make_unique<std::uint8_t[]>(pixels * pixel_bytes);
        for (std::size_t i = 0; i < pixels * pixel_bytes; ++i) {
          in[i] = static_cast<std::uint8_t>(7 * i);
        }
        const auto run = [&](fastio::SimdLevel level) {
          const auto out = std::make_unique<std::uint8_t[]>(pixels * channels);
          fastio::reorder_pixels(in.get(), order, out.get(), channels, pixels, level);
          return File(out.get(), out.get() + pixels * channels);
        };
        EXPECT(run(fastio::SimdLevel::none) == run(fastio::simd_level()));
      }
    }
  }
}

}  // namespace

int main() {
  test_regions();
  test_prefixes();
  test_reorder();
  return failures;
}
