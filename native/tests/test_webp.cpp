// WebP by libwebp on a small file: regions beside the whole picture, and every prefix of the file;
// in a build without libwebp, that all is left to Pillow.
#include <cstdint>
#include <vector>

#include "check.h"
#include "decode_region.h"
#include "pictures/kinds.h"
#include "pictures/probe.h"

namespace {

using fastio::Status;

// 6 x 5, lossy.
const File picture{0x52, 0x49, 0x46, 0x46, 0x30, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50,
                   0x56, 0x50, 0x38, 0x20, 0x24, 0x00, 0x00, 0x00, 0x50, 0x01, 0x00, 0x9D,
                   0x01, 0x2A, 0x06, 0x00, 0x05, 0x00, 0x09, 0x00, 0xAC, 0x25, 0xA0, 0x00,
                   0x06, 0x06, 0x80, 0x00, 0xFE, 0xE0, 0x77, 0x3F, 0xDF, 0xB9, 0xBB, 0xDD,
                   0x7D, 0xFC, 0x13, 0x4C, 0xE4, 0x00, 0x00, 0x00};
constexpr std::size_t width = 6;
constexpr std::size_t height = 5;

constexpr auto decode = decode_region<fastio::ImageKind::webp>;

/// The region of a picture that has been decoded whole.
File cut(const File& whole, const fastio::Region& region, std::size_t channels) {
  File pixels;
  for (std::size_t y = region.y; y < region.y + region.height; ++y) {
    const auto row = whole.begin() + static_cast<std::ptrdiff_t>((y * width + region.x) * channels);
    pixels.insert(pixels.end(), row, row + static_cast<std::ptrdiff_t>(region.width * channels));
  }
  return pixels;
}

void test_regions() {
  File whole;
  File pixels;
  for (const int channels : {1, 3, 4}) {
    EXPECT(decode(picture, {0, 0, width, height}, channels, whole) == Status::ok);
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        const fastio::Region region{x, y, width - x, height - y};
        EXPECT(decode(picture, region, channels, pixels) == Status::ok);
        EXPECT(pixels == cut(whole, region, static_cast<std::size_t>(channels)));
      }
    }
  }
  EXPECT(decode(picture, {1, 0, width, height}, 3, pixels) == Status::bad_shape);
}

/// Shorter files are not taken for WebP.
void test_prefixes() {
  File pixels;
  for (std::size_t size = fastio::signature_bytes; size < picture.size(); ++size) {
    const File prefix(picture.begin(), picture.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(decode(prefix, {0, 0, width, height}, 3, pixels) == Status::truncated);
  }
}

}  // namespace

int main() {
  if (fastio::webp_version() == nullptr) {
    File pixels;
    EXPECT(decode(picture, {0, 0, width, height}, 3, pixels) == Status::unsupported);
    return failures;
  }
  test_regions();
  test_prefixes();
  return failures;
}
