// libFuzzer target: our entropy decoder beside libjpeg-turbo's on hostile bytes.
//
// Where ours finds nothing wrong, theirs must not either, and the pixels must be the same.
// Ours may be stricter: theirs takes codes that do not exist for zeros on its fast path.
//
// Input with JPEG's signature is a file. Any other is a recipe: a few header bytes, then the
// scan, because a mutated file hardly ever gets past its headers.
#include "fuzz_entropy.h"

namespace {

using fastio::Bytes;
using fastio::File;
using fastio::put_segment;

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input(data, size);
  if (fastio::image_kind(input) == fastio::ImageKind::jpeg) {
    fastio::compare(input);
  } else if (size > 5) {
    fastio::compare(build(input));
  }
  return 0;
}
