// libFuzzer target: the PNG decoder on hostile bytes.
//
// Input with PNG's signature is a file. Any other is a recipe: a few header bytes, then the
// filtered rows, from which a valid file is built, because a mutated zlib stream would
// hardly ever get past its Adler-32.
#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/checksum.h"
#include "fuzz_picture.h"

namespace {

using File = std::vector<std::uint8_t>;

void put_u32(File& file, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    file.push_back(static_cast<std::uint8_t>(value >> shift));
  }
}

void put_chunk(File& file, const char* type, fastio::Bytes payload) {
  put_u32(file, static_cast<std::uint32_t>(payload.size()));
  const std::size_t start = file.size();
  file.insert(file.end(), type, type + 4);
  file.insert(file.end(), payload.begin(), payload.end());
  put_u32(file, fastio::crc32({file.data() + start, file.size() - start}));
}

/// Recipe: width, height, depth, colour, interlace, palette entries, transparency bytes;
/// then palette, transparency and filtered rows.
File build(fastio::Bytes recipe) {
  constexpr std::array<std::uint8_t, 5> depths{1, 2, 4, 8, 16};
  constexpr std::array<std::uint8_t, 5> colors{0, 2, 3, 4, 6};
  File file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const std::uint8_t width = recipe[0] % 40;
  const std::uint8_t height = recipe[1] % 40;
  const std::array<std::uint8_t, 13> header{0,
                                            0,
                                            0,
                                            width,
                                            0,
                                            0,
                                            0,
                                            height,
                                            depths[recipe[2] % 5],
                                            colors[recipe[3] % 5],
                                            0,
                                            0,
                                            static_cast<std::uint8_t>(recipe[4] % 2)};
  put_chunk(file, "IHDR", header);
  fastio::Bytes rest = recipe.subspan(7);
  const auto take = [&rest](std::size_t size) {
    const fastio::Bytes taken = rest.first(std::min(size, rest.size()));
    rest = rest.subspan(taken.size());
    return taken;
  };
  if (recipe[5] != 0) put_chunk(file, "PLTE", take(std::size_t{3} * recipe[5]));
  if (recipe[6] != 0) put_chunk(file, "tRNS", take(recipe[6]));
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(1);
  std::vector<std::uint8_t> stream(libdeflate_zlib_compress_bound(compressor, rest.size()));
  stream.resize(
      libdeflate_zlib_compress(compressor, rest.data(), rest.size(), stream.data(), stream.size()));
  libdeflate_free_compressor(compressor);
  put_chunk(file, "IDAT", {stream.data(), stream.size() / 2});
  put_chunk(file, "IDAT", fastio::Bytes(stream).subspan(stream.size() / 2));
  put_chunk(file, "IEND", {});
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fastio::Worker worker;  // kept, as a thread of the pool keeps it: state must not leak over
  const fastio::Bytes input(data, size);
  if (fastio::image_kind(input) == fastio::ImageKind::png) {
    fastio::decode_as_all(worker, input);
  } else if (size > 8) {
    const File file = build(input);
    fastio::decode_as_all(worker, file);
  }
  return 0;
}
