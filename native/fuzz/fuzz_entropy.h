/// Our entropy decoders beside libjpeg-turbo's: what their fuzz targets share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "jpeg/jpeg.h"
#include "pictures/probe.h"

namespace fastio {

using File = std::vector<std::uint8_t>;

inline void put_segment(File& file, std::uint8_t marker, const File& payload) {
  const std::size_t size = payload.size() + 2;
  file.insert(file.end(), {0xFF, marker, static_cast<std::uint8_t>(size >> 8),
                           static_cast<std::uint8_t>(size)});
  file.insert(file.end(), payload.begin(), payload.end());
}

struct Decoded {
  Status status;
  File pixels;
};

inline Decoded decode_whole(JpegDecoder& decoder, Bytes file, const ImageInfo& info) {
  const auto height = static_cast<std::size_t>(info.height);
  const auto width = static_cast<std::size_t>(info.width);
  File pixels(height * width * 3);
  const Status status = decoder.decode(file, {pixels.data(), height, width, 3});
  return {status, std::move(pixels)};
}

/// A region that depends on the size of the file; ours passes over restart intervals outside,
/// and over damage in them.
inline void compare_part(JpegDecoder& own_decoder, JpegDecoder& their_decoder, Bytes file,
                         const ImageInfo& info) {
  const auto height = static_cast<std::size_t>(info.height);
  const auto width = static_cast<std::size_t>(info.width);
  const std::size_t x = file.size() % width;
  const std::size_t y = file.size() / 3 % height;
  const Region region{x, y, (width - x + 1) / 2, (height - y + 1) / 2};
  PixelView own{};
  PixelView theirs{};
  const PicturePart part{region, region, 3};
  if (own_decoder.decode_part(file, part, own) != Status::ok) return;
  if (their_decoder.decode_part(file, part, theirs) != Status::ok) return;
  for (std::size_t row = 0; row < region.height; ++row) {
    const std::uint8_t* own_row = own.data + row * own.stride;
    if (!std::equal(own_row, own_row + 3 * region.width, theirs.data + row * theirs.stride)) {
      std::abort();
    }
  }
}

/// Who walks a scan without decoding it sees the damage that decoding sees; not in files that have
/// no jump table.
inline void compare_walk(Bytes file, Status decoded) {
  static JpegDecoder walking;
  std::array<Bytes, 7> files;  // several at once, and others in their place
  files.fill(file);
  std::array<NotedPoints, files.size()> noted;
  walking.note_points(files, 8, noted.data());
  for (const NotedPoints& each : noted) {
    const Status walked = each.status;
    if (walked != noted[0].status ||
        !std::ranges::equal(each.table.bytes(), noted[0].table.bytes()))
      std::abort();
    if (walked != decoded && (walked == Status::ok || decoded == Status::ok) &&
        walked != Status::unsupported) {
      std::abort();
    }
  }
}

/// Where ours finds nothing wrong, theirs must not either, and the pixels must be the same.
inline void compare(Bytes file) {
  static JpegDecoder own_decoder(Entropy::fastio);  // kept: tables must not leak over
  static JpegDecoder their_decoder(Entropy::libjpeg_turbo);
  constexpr std::int64_t most_pixels = 1 << 14;
  const ImageInfo info = probe_image(file);
  if (info.status != Status::ok || std::int64_t{info.height} * info.width > most_pixels) return;
  const Decoded own = decode_whole(own_decoder, file, info);
  const Decoded theirs = decode_whole(their_decoder, file, info);
  if (own.status == Status::ok) {
    if (theirs.status != Status::ok || theirs.pixels != own.pixels) std::abort();
  } else if (theirs.status == Status::ok) {
    if (own.status != Status::corrupt) std::abort();
  }
  compare_part(own_decoder, their_decoder, file, info);
  compare_walk(file, own.status);
}

}  // namespace fastio
