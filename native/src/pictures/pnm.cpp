// PNMs. Binary ones (P4, P5, P6) of 8 bits or 1 are decoded here: nothing but the rows and columns
// that are wanted is read. Pillow decodes the others.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "core/simd.h"
#include "pictures/kinds.h"
#include "pictures/pixels.h"

namespace fastio {
namespace {

bool is_space(std::uint8_t c) noexcept {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

bool is_pnm(Bytes file) noexcept {
  return file.size() >= 3 && file[0] == 'P' && file[1] >= '1' && file[1] <= '6' &&
         (is_space(file[2]) || file[2] == '#');
}

/// The next number of a header, behind white space and comments; moves `at` behind it. -1 where
/// there is none, or one of more than ten digits, which Pillow refuses.
std::int64_t pnm_number(Bytes file, std::size_t& at) noexcept {
  while (at < file.size() && (is_space(file[at]) || file[at] == '#')) {
    const bool comment = file[at] == '#';
    ++at;
    while (comment && at < file.size() && file[at] != '\n' && file[at] != '\r') ++at;
  }
  constexpr int most_digits = 10;
  std::int64_t value = -1;
  for (int digits = 1; at < file.size() && file[at] >= '0' && file[at] <= '9'; ++at, ++digits) {
    value = std::max<std::int64_t>(value, 0) * 10 + (file[at] - '0');
    if (value > INT32_MAX || digits > most_digits) return -1;
  }
  return value;
}

/// What the header says, once it has been checked against the size of the file.
struct PnmHeader {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t bits = 0;  ///< a pixel: 1 (P4, where a set bit is black), 8 (P5) or 24 (P6)
  std::size_t start = 0;
  std::size_t stride = 0;  ///< from one row to the next
};

/// Reads the header. `truncated` where the file ends before the last row does; `unsupported` for
/// what Pillow shall judge: numbers as text (P1 to P3), a maximum other than 255, and headers that
/// only Pillow would take.
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

class PnmDecoder final : public RegionDecoder {
 public:
  [[nodiscard]] Status open(Bytes file) noexcept override {
    file_ = file;
    return read_pnm_header(file, header_);
  }

  [[nodiscard]] std::size_t width() const noexcept override { return header_.width; }
  [[nodiscard]] std::size_t height() const noexcept override { return header_.height; }
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept override;

 private:
  PnmHeader header_;
  Bytes file_;
};

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

std::unique_ptr<RegionDecoder> make_decoder() {
  return std::make_unique<PnmDecoder>();
}

Size probe_pnm(Bytes file) noexcept {
  std::size_t at = 2;
  const std::int64_t width = pnm_number(file, at);
  const std::int64_t height = pnm_number(file, at);
  if (at >= file.size()) return truncated_size;
  return {Status::ok, height, width, file[1] == '3' || file[1] == '6' ? 3 : 1};
}

/// Fewer bytes than the header announces. Numbers as text (P1 to P3) have no size that is known.
bool pnm_breaks_off(Bytes file) noexcept {
  const std::uint8_t kind = file[1];
  if (kind < '4') return false;
  std::size_t at = 2;
  const std::int64_t width = pnm_number(file, at);
  const std::int64_t height = pnm_number(file, at);
  const std::int64_t maximum = kind == '4' ? 1 : pnm_number(file, at);
  if (width <= 0 || height <= 0 || maximum <= 0) return true;
  if (at >= file.size()) return true;
  const std::size_t bits = kind == '4' ? 1 : (kind == '5' ? 8 : 24) * (maximum > 255 ? 2 : 1);
  const std::size_t stride = (static_cast<std::size_t>(width) * bits + 7) / 8;
  return (file.size() - at - 1) / stride < static_cast<std::size_t>(height);
}

}  // namespace

const PictureKind pnm_kind{"PNM",     "ppm pgm pbm pnm", is_pnm,
                           probe_pnm, pnm_breaks_off,    make_decoder};

}  // namespace fastio
