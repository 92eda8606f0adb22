// The PNG reader on a small file: its pixels, every prefix of it, and every bit of it flipped.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "check.h"
#include "png/png.h"
#include "png_file.h"

namespace {

using fastio::Status;

// 2 x 2 grey: rows 1 2 and 3 4, the second filtered by Up.
constexpr std::array<std::uint8_t, 6> filtered_rows{0, 1, 2, 2, 2, 2};
constexpr std::array<std::uint8_t, 4> expected_pixels{1, 2, 3, 4};

File picture(fastio::Bytes filtered) {
  return png_file({0, 0, 0, 2, 0, 0, 0, 2, 8, 0, 0, 0, 0}, filtered);
}

/// Decodes from memory of the file's exact size.
Status decode(const File& file, std::array<std::uint8_t, 4>& pixels) {
  static fastio::PngDecoder decoder;
  const auto copy = std::make_unique<std::uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), copy.get());
  return decoder.decode({copy.get(), file.size()}, {pixels.data(), 2, 2, 1}, true);
}

}  // namespace

int main() {
  std::array<std::uint8_t, 4> pixels{};
  const File good = picture(filtered_rows);
  EXPECT(decode(good, pixels) == Status::ok);
  EXPECT(pixels == expected_pixels);

  constexpr std::size_t data_start = 8 + 25 + 8;  // behind signature, IHDR, and the head of IDAT
  for (std::size_t size = 0; size < good.size(); ++size) {
    const File prefix(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    const Status expected = size < data_start ? Status::truncated : Status::unsupported;
    EXPECT(decode(prefix, pixels) == expected);
  }
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    File flipped = good;
    flipped[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT(decode(flipped, pixels) != Status::ok);
  }
  EXPECT(decode(picture(fastio::Bytes(filtered_rows).first(5)), pixels) == Status::corrupt);
  const std::array<std::uint8_t, 7> too_much{};
  EXPECT(decode(picture(too_much), pixels) == Status::corrupt);
  const std::array<std::uint8_t, 6> bad_filter{9, 1, 2, 2, 2, 2};
  EXPECT(decode(picture(bad_filter), pixels) == Status::corrupt);
  return failures;
}
