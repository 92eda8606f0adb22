#include "pictures/pnm.h"

#include <cstdint>
#include <cstring>

#include "core/simd.h"
#include "pictures/pixels.h"
#include "pictures/probe.h"

namespace fastio {
namespace {

/// One grey in every channel, opaque.
template <std::size_t channels>
void put_grey(std::uint8_t grey, std::uint8_t* out) noexcept {
  for (std::size_t c = 0; c < channels; ++c) out[c] = c == 3 ? 255 : grey;
}

template <std::size_t channels>
void bit_row(const std::uint8_t* row, std::size_t first, std::size_t width,
             std::uint8_t* out) noexcept {
  for (std::size_t x = first; x < first + width; ++x, out += channels) {
    const bool is_black = (row[x / 8] >> (7 - x % 8) & 1) != 0;
    put_grey<channels>(is_black ? 0 : 255, out);
  }
}

template <std::size_t channels>
void grey_row(const std::uint8_t* row, std::size_t width, std::uint8_t* out) noexcept {
  if constexpr (channels == 1) {
    std::memcpy(out, row, width);
  } else {
    for (std::size_t x = 0; x < width; ++x) put_grey<channels>(row[x], out + channels * x);
  }
}

template <std::size_t channels>
void rgb_row(const std::uint8_t* row, std::size_t width, std::uint8_t* out) noexcept {
  if constexpr (channels == 1) {
    rgb_to_grey(row, out, width);
  } else if constexpr (channels == 3) {
    std::memcpy(out, row, 3 * width);
  } else {
    reorder_pixels(row, {3, {0, 1, 2, 0}, false}, out, channels, width, simd_level());
  }
}

template <std::size_t channels>
void convert_row(const std::uint8_t* row, std::size_t bits, std::size_t first, std::size_t width,
                 std::uint8_t* out) noexcept {
  switch (bits) {
    case 1: return bit_row<channels>(row, first, width, out);
    case 8: return grey_row<channels>(row + first, width, out);
    default: return rgb_row<channels>(row + 3 * first, width, out);
  }
}

}  // namespace

Status read_pnm_header(Bytes file, PnmHeader& header) noexcept {
  if (file.size() < 3) return Status::truncated;
  const std::uint8_t kind = file[1];
  if (kind < '4' || kind > '6' || file[2] == '#') return Status::unsupported;
  std::size_t at = 2;
  const std::int64_t width = pnm_number(file, at);
  const std::int64_t height = pnm_number(file, at);
  const std::int64_t maximum = kind == '4' ? 255 : pnm_number(file, at);
  if (at >= file.size()) return Status::truncated;
  // A comment that continues a number, signs, letters: Pillow takes some of them.
  if (width < 0 || height < 0 || maximum != 255 || !is_space(file[at])) return Status::unsupported;
  if (width == 0 || height == 0) return Status::corrupt;
  header.width = static_cast<std::size_t>(width);
  header.height = static_cast<std::size_t>(height);
  header.bits = kind == '4' ? 1 : kind == '5' ? 8 : 24;
  header.start = at + 1;
  header.stride = (header.width * header.bits + 7) / 8;
  const std::size_t rows_bytes = header.height * header.stride;
  return rows_bytes > file.size() - header.start ? Status::truncated : Status::ok;
}

Status PnmDecoder::open(Bytes file) noexcept {
  file_ = file;
  return read_pnm_header(file, header_);
}

Status PnmDecoder::decode(const Region& region, const Picture& out) noexcept {
  if (!region.is_inside(header_.width, header_.height)) return Status::bad_shape;
  const auto convert = out.channels == 1   ? convert_row<1>
                       : out.channels == 3 ? convert_row<3>
                                           : convert_row<4>;
  for (std::size_t y = 0; y < region.height; ++y) {
    const std::uint8_t* row = file_.data() + header_.start + (region.y + y) * header_.stride;
    convert(row, header_.bits, region.x, region.width, out.row(y));
  }
  return Status::ok;
}

}  // namespace fastio
