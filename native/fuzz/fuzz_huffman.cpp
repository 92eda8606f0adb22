// libFuzzer target: our entropy decoder beside libjpeg-turbo's on hostile bytes.
//
// Where ours finds nothing wrong, theirs must not either, and the pixels must be the same.
// Ours may be stricter: theirs takes codes that do not exist for zeros on its fast path.
//
// Input with JPEG's signature is a file. Any other is a recipe: a few header bytes, then the
// scan, because a mutated file hardly ever gets past its headers.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "fastio/jpeg.h"
#include "fastio/probe.h"

namespace {

using fastio::Bytes;
using fastio::Entropy;
using fastio::JpegDecoder;
using fastio::Status;
using File = std::vector<std::uint8_t>;

void put_segment(File& file, std::uint8_t marker, const File& payload) {
  const std::size_t size = payload.size() + 2;
  file.insert(file.end(), {0xFF, marker, static_cast<std::uint8_t>(size >> 8),
                           static_cast<std::uint8_t>(size)});
  file.insert(file.end(), payload.begin(), payload.end());
}

/// Recipe: width, height, sampling, restart interval, symbols of an AC table (0: the standard
/// ones, which libjpeg knows); counts and symbols of that table; the scan, which may hold
/// markers of its own.
File build(Bytes recipe) {
  const std::uint8_t width = recipe[0] % 64;
  const std::uint8_t height = recipe[1] % 64;
  const auto sampling = static_cast<std::uint8_t>(0x11 + recipe[2] % 2 + 16 * (recipe[2] / 2 % 2));
  const bool color = recipe[2] / 4 % 4 != 0;
  const std::size_t symbols = recipe[4];
  Bytes rest = recipe.subspan(5);
  File file{0xFF, 0xD8};
  File steps(65, 1);
  steps[0] = 0;
  put_segment(file, 0xDB, steps);
  if (color) {
    put_segment(file, 0xC0, {8, 0, height, 0, width, 3, 1, sampling, 0, 2, 0x11, 0, 3, 0x11, 0});
  } else {
    put_segment(file, 0xC0, {8, 0, height, 0, width, 1, 1, sampling, 0});
  }
  if (symbols != 0 && rest.size() >= 16 + symbols) {
    File table{0x10};
    table.insert(table.end(), rest.begin(), rest.begin() + static_cast<long>(16 + symbols));
    put_segment(file, 0xC4, table);
    rest = rest.subspan(16 + symbols);
  }
  put_segment(file, 0xDD, {0, recipe[3]});
  if (color) {
    put_segment(file, 0xDA, {3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0});
  } else {
    put_segment(file, 0xDA, {1, 1, 0x00, 0, 63, 0});
  }
  file.insert(file.end(), rest.begin(), rest.end());
  file.insert(file.end(), {0xFF, 0xD9});
  return file;
}

struct Decoded {
  Status status;
  File pixels;
};

Decoded decode(JpegDecoder& decoder, Bytes file, const fastio::ImageInfo& info) {
  const auto height = static_cast<std::size_t>(info.height);
  const auto width = static_cast<std::size_t>(info.width);
  File pixels(height * width * 3);
  const Status status = decoder.decode(file, {pixels.data(), height, width, 3});
  return {status, std::move(pixels)};
}

/// A region that depends on the size of the file; ours passes over restart intervals outside,
/// and over damage in them.
void compare_part(JpegDecoder& own_decoder, JpegDecoder& their_decoder, Bytes file,
                  const fastio::ImageInfo& info) {
  const auto height = static_cast<std::size_t>(info.height);
  const auto width = static_cast<std::size_t>(info.width);
  const std::size_t x = file.size() % width;
  const std::size_t y = file.size() / 3 % height;
  const fastio::Region region{x, y, (width - x + 1) / 2, (height - y + 1) / 2};
  fastio::PixelView own{};
  fastio::PixelView theirs{};
  const fastio::PicturePart part{region, region, 3};
  if (own_decoder.decode_part(file, part, own) != Status::ok) return;
  if (their_decoder.decode_part(file, part, theirs) != Status::ok) return;
  for (std::size_t row = 0; row < region.height; ++row) {
    const std::uint8_t* own_row = own.data + row * own.stride;
    if (!std::equal(own_row, own_row + 3 * region.width, theirs.data + row * theirs.stride)) {
      std::abort();
    }
  }
}

void compare(Bytes file) {
  static JpegDecoder own_decoder(Entropy::fastio);  // kept: tables must not leak over
  static JpegDecoder their_decoder(Entropy::libjpeg_turbo);
  constexpr std::int64_t most_pixels = 1 << 14;
  const fastio::ImageInfo info = fastio::probe_image(file);
  if (info.status != Status::ok || std::int64_t{info.height} * info.width > most_pixels) return;
  const Decoded own = decode(own_decoder, file, info);
  const Decoded theirs = decode(their_decoder, file, info);
  if (own.status == Status::ok) {
    if (theirs.status != Status::ok || theirs.pixels != own.pixels) std::abort();
  } else if (theirs.status == Status::ok) {
    if (own.status != Status::corrupt) std::abort();
  }
  compare_part(own_decoder, their_decoder, file, info);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input(data, size);
  if (fastio::image_kind(input) == fastio::ImageKind::jpeg) {
    compare(input);
  } else if (size > 5) {
    compare(build(input));
  }
  return 0;
}
