// libFuzzer target: our decoder of progressive scans beside libjpeg-turbo's on hostile bytes.
//
// Input with JPEG's signature is a file. Any other is a recipe: a few header bytes, then for every
// scan of a complete script its size and its bytes, because a mutated file hardly ever gets past
// its headers, and one that lacks a scan is left to Pillow.
#include "fuzz_entropy.h"

namespace {

using fastio::Bytes;
using fastio::File;
using fastio::put_segment;

/// First and last coefficient, bits sent before, bits left.
struct Band {
  std::uint8_t first, last, high, low;
};

constexpr Band dc_bands[] = {{0, 0, 0, 1}, {0, 0, 1, 0}};
constexpr Band ac_bands[] = {{1, 5, 0, 2}, {6, 63, 0, 2}, {1, 63, 2, 1}, {1, 63, 1, 0}};

/// Thirty codes of five bits, so that most bytes make sense.
File dense_table(std::uint8_t number) {
  File table{number, 0, 0, 0, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  if (number < 0x10) {
    for (std::uint8_t i = 0; i < 30; ++i) table.push_back(i % 12);
  } else {
    const File symbols{0x00, 0x01, 0x11, 0x21, 0x31, 0x01, 0x11, 0x41, 0x51, 0x10,
                       0x20, 0x30, 0x40, 0x50, 0xE0, 0xF0, 0x61, 0x71, 0x81, 0xF1,
                       0x02, 0x12, 0x03, 0x04, 0x22, 0x0A, 0x01, 0x11, 0x00, 0x21};
    table.insert(table.end(), symbols.begin(), symbols.end());
  }
  return table;
}

/// Takes a size and as many bytes.
Bytes take(Bytes& recipe) {
  if (recipe.empty()) return {};
  const std::size_t size = std::min<std::size_t>(2 * recipe[0], recipe.size() - 1);
  const Bytes taken = recipe.subspan(1, size);
  recipe = recipe.subspan(1 + size);
  return taken;
}

void put_scan(File& file, const File& components, const Band& band, Bytes& recipe) {
  File header{static_cast<std::uint8_t>(components.size())};
  for (const std::uint8_t component : components) header.insert(header.end(), {component, 0x00});
  header.insert(header.end(),
                {band.first, band.last, static_cast<std::uint8_t>(band.high << 4 | band.low)});
  put_segment(file, 0xDA, header);
  const Bytes bits = take(recipe);
  file.insert(file.end(), bits.begin(), bits.end());
}

/// Recipe: width, height, sampling and number of components, restart interval; the scans.
File build(Bytes recipe) {
  const std::uint8_t width = recipe[0] % 64;
  const std::uint8_t height = recipe[1] % 64;
  const auto sampling = static_cast<std::uint8_t>(0x11 + recipe[2] % 2 + 16 * (recipe[2] / 2 % 2));
  const std::uint8_t components[] = {1, 3, 4, 3};
  const std::uint8_t count = components[recipe[2] / 4 % 4];
  const std::uint8_t restart = recipe[3];
  recipe = recipe.subspan(4);
  File file{0xFF, 0xD8};
  File steps(65, 1);
  steps[0] = 0;
  put_segment(file, 0xDB, steps);
  File frame{8, 0, height, 0, width, count};
  File all;
  for (std::uint8_t i = 1; i <= count; ++i) {
    frame.insert(frame.end(), {i, i == 1 ? sampling : std::uint8_t{0x11}, 0});
    all.push_back(i);
  }
  put_segment(file, 0xC2, frame);
  put_segment(file, 0xC4, dense_table(0x00));
  put_segment(file, 0xC4, dense_table(0x10));
  put_segment(file, 0xDD, {0, restart});
  for (const Band& band : dc_bands) put_scan(file, all, band, recipe);
  for (const std::uint8_t component : all) {
    for (const Band& band : ac_bands) put_scan(file, {component}, band, recipe);
  }
  file.insert(file.end(), {0xFF, 0xD9});
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input(data, size);
  if (fastio::image_kind(input) == fastio::ImageKind::jpeg) {
    fastio::compare(input);
  } else if (size > 4) {
    fastio::compare(build(input));
  }
  return 0;
}
