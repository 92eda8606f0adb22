#include "fastio/bmp.h"

#include <cstring>

#include "fastio/reorder.h"
#include "fastio/simd.h"

namespace fastio {
namespace {

/// What every index becomes: `channels` bytes.
using Colors = std::array<std::uint8_t, 4 * 256>;

Colors colors_of(const BmpHeader& header, int channels) noexcept {
  if (channels != 1) return header.palette;
  Colors greys{};
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint8_t* color = header.palette.data() + 4 * i;
    greys[4 * i] = luma(color[0], color[1], color[2]);
  }
  return greys;
}

void put(const std::uint8_t* color, std::uint8_t* out, std::size_t channels) noexcept {
  for (std::size_t c = 0; c < channels; ++c) out[c] = color[c];
}

/// A row of indices of `bits`, from pixel `first` on.
template <std::size_t channels>
void palette_row(const std::uint8_t* row, std::size_t bits, std::size_t first, std::size_t width,
                 const Colors& colors, std::uint8_t* out) noexcept {
  const std::size_t mask = (std::size_t{1} << bits) - 1;
  for (std::size_t x = 0; x < width; ++x, out += channels) {
    const std::size_t bit = (first + x) * bits;
    const std::size_t index = (std::size_t{row[bit / 8]} >> (8 - bits - bit % 8)) & mask;
    put(colors.data() + 4 * index, out, channels);
  }
}

/// A row of pixels of 16 bits.
template <std::size_t channels>
void short_row(const std::uint8_t* row, std::size_t green_bits, std::size_t width,
               std::uint8_t* out) noexcept {
  const unsigned most_green = (1U << green_bits) - 1;
  for (std::size_t x = 0; x < width; ++x, out += channels) {
    const unsigned pixel = row[2 * x] | static_cast<unsigned>(row[2 * x + 1]) << 8;
    const auto r = static_cast<std::uint8_t>((pixel >> (5 + green_bits) & 31) * 255 / 31);
    const auto g = static_cast<std::uint8_t>((pixel >> 5 & most_green) * 255 / most_green);
    const auto b = static_cast<std::uint8_t>((pixel & 31) * 255 / 31);
    const std::uint8_t color[4] = {channels == 1 ? luma(r, g, b) : r, g, b, 255};
    put(color, out, channels);
  }
}

void grey_row(const std::uint8_t* row, const ByteOrder& order, std::size_t width,
              std::uint8_t* out) noexcept {
  const auto& [r, g, b, a] = order.places;
  for (std::size_t x = 0; x < width; ++x, row += order.pixel_bytes) {
    out[x] = luma(row[r], row[g], row[b]);
  }
}

template <std::size_t channels>
void convert_row(const BmpHeader& header, const Colors& colors, const std::uint8_t* row,
                 std::size_t first, std::size_t width, std::uint8_t* out) noexcept {
  if (header.bits <= 8) return palette_row<channels>(row, header.bits, first, width, colors, out);
  const std::size_t pixel_bytes = header.bits / 8;
  const std::uint8_t* pixels = row + first * pixel_bytes;
  if (header.bits == 16) return short_row<channels>(pixels, header.green_bits, width, out);
  const ByteOrder order{pixel_bytes, header.places, header.has_alpha};
  if constexpr (channels == 1) {
    grey_row(pixels, order, width, out);
  } else {
    reorder_pixels(pixels, order, out, channels, width, simd_level());
  }
}

constexpr std::size_t rows_ahead = 2;

void prefetch(const std::uint8_t* row, std::size_t first, std::size_t stop) noexcept {
  constexpr std::size_t cache_line = 64;
  for (std::size_t i = first; i < stop; i += cache_line) __builtin_prefetch(row + i);
}

}  // namespace

Status BmpDecoder::open(Bytes file) noexcept {
  file_ = file;
  return read_bmp_header(file, header_);
}

Status BmpDecoder::decode(const Region& region, const Picture& out) noexcept {
  if (!region.is_inside(header_.width, header_.height)) return Status::bad_shape;
  const auto convert = out.channels == 1   ? convert_row<1>
                       : out.channels == 3 ? convert_row<3>
                                           : convert_row<4>;
  const Colors colors = header_.bits <= 8 ? colors_of(header_, out.channels) : Colors{};
  const std::size_t first_byte = region.x * header_.bits / 8;
  const std::size_t stop_byte = (region.x + region.width) * header_.bits / 8;
  const auto row = [&](std::size_t y) {
    const std::size_t line = header_.top_down ? region.y + y : header_.height - 1 - (region.y + y);
    return file_.data() + header_.start + line * header_.stride;
  };
  for (std::size_t y = 0; y < region.height; ++y) {
    // The last row of the picture is the first one of the file, and processors do not expect to
    // read backwards: 1.23 (1.03-1.35) times as fast for 48 of 500x375 pixels, 0.75 of memcpy.
    if (y + rows_ahead < region.height) prefetch(row(y + rows_ahead), first_byte, stop_byte);
    convert(header_, colors, row(y), region.x, region.width, out.row(y));
  }
  return Status::ok;
}

}  // namespace fastio
