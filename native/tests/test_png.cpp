// The PNG reader on a small file: its pixels, every prefix of it, and every bit of it flipped.
#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "check.h"
#include "fastio/crc32.h"
#include "fastio/png.h"

namespace {

using fastio::Status;
using File = std::vector<std::uint8_t>;

// 2 x 2 grey: rows 1 2 and 3 4, the second filtered by Up.
constexpr std::array<std::uint8_t, 6> filtered_rows{0, 1, 2, 2, 2, 2};
constexpr std::array<std::uint8_t, 4> expected_pixels{1, 2, 3, 4};

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

File picture(fastio::Bytes filtered) {
  File file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const std::array<std::uint8_t, 13> header{0, 0, 0, 2, 0, 0, 0, 2, 8, 0, 0, 0, 0};
  put_chunk(file, "IHDR", header);
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(6);
  File stream(64);
  stream.resize(libdeflate_zlib_compress(compressor, filtered.data(), filtered.size(),
                                         stream.data(), stream.size()));
  libdeflate_free_compressor(compressor);
  put_chunk(file, "IDAT", stream);
  put_chunk(file, "IEND", {});
  return file;
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

  for (std::size_t size = 0; size < good.size(); ++size) {
    const File prefix(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(decode(prefix, pixels) == Status::truncated);
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
