// BMPs: nothing but the rows and columns that are wanted is looked at.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/simd.h"
#include "pictures/kinds.h"
#include "pictures/pixels.h"

namespace fastio {
namespace {

/// What the header says, once it has been checked against the size of the file.
struct BmpHeader {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t bits = 0;  ///< a pixel: 1, 4 and 8 with a palette, 16, 24, 32
  bool top_down = false;
  std::size_t start = 0;                 ///< of the first row that is stored
  std::size_t stride = 0;                ///< from one row to the next
  std::array<std::uint8_t, 4> places{};  ///< of red, green, blue and alpha in 24 and 32 bits
  bool has_alpha = false;
  std::size_t green_bits = 5;                   ///< of 16; red and blue have 5
  std::array<std::uint8_t, 4 * 256> palette{};  ///< RGBA
};

constexpr std::size_t file_header_bytes = 14;
constexpr std::size_t core_header_bytes = 12;  // OS/2's: sizes of 16 bits, palettes of 3 bytes
constexpr std::size_t masks_at = 54;  // behind the header of 40 bytes or inside a longer one

enum Compression : std::uint32_t { raw = 0, bit_fields = 3 };

/// Red, green, blue and alpha of a pixel.
using Masks = std::array<std::uint32_t, 4>;

bool is_header_size(std::size_t size) noexcept {
  constexpr std::array<std::size_t, 7> known{12, 40, 52, 56, 64, 108, 124};
  return std::find(known.begin(), known.end(), size) != known.end();
}

/// The places of the colours in 32 bits, of those masks that Pillow knows.
bool places_of(const Masks& masks, BmpHeader& header) noexcept {
  struct Known {
    Masks masks;
    std::array<std::uint8_t, 4> places;
  };
  constexpr std::array<Known, 8> known{{
      {{0xFF0000, 0xFF00, 0xFF, 0}, {2, 1, 0, 0}},
      {{0xFF000000, 0xFF0000, 0xFF00, 0}, {3, 2, 1, 0}},
      {{0xFF000000, 0xFF00, 0xFF, 0}, {3, 1, 0, 0}},
      {{0xFF000000, 0xFF0000, 0xFF00, 0xFF}, {3, 2, 1, 0}},
      {{0xFF, 0xFF00, 0xFF0000, 0xFF000000}, {0, 1, 2, 3}},
      {{0xFF0000, 0xFF00, 0xFF, 0xFF000000}, {2, 1, 0, 3}},
      {{0xFF000000, 0xFF00, 0xFF, 0xFF0000}, {3, 1, 0, 2}},
      {{0, 0, 0, 0}, {2, 1, 0, 3}},
  }};
  const auto* row = std::find_if(known.begin(), known.end(),
                                 [&](const Known& candidate) { return candidate.masks == masks; });
  if (row == known.end()) return false;
  header.places = row->places;
  header.has_alpha = masks[3] != 0 || masks[0] == 0;
  return true;
}

/// The layout of pixels without a palette; false for one that Pillow does not know.
bool read_layout(const Reader& read, std::size_t header_bytes, std::uint32_t compression,
                 BmpHeader& header) noexcept {
  header.places = {2, 1, 0, 0};
  header.has_alpha = false;
  header.green_bits = 5;
  if (compression == Compression::raw) return true;
  if (!read.has(0, masks_at + 16)) return false;
  constexpr std::size_t first_with_alpha = 56;
  const Masks masks{read.u32(masks_at), read.u32(masks_at + 4), read.u32(masks_at + 8),
                    header_bytes >= first_with_alpha ? read.u32(masks_at + 12) : 0};
  if (header.bits == 32) return places_of(masks, header);
  const Masks colors{masks[0], masks[1], masks[2], 0};
  if (header.bits == 24) return colors == Masks{0xFF0000, 0xFF00, 0xFF, 0};
  if (colors == Masks{0xF800, 0x7E0, 0x1F, 0}) {
    header.green_bits = 6;
    return true;
  }
  return colors == Masks{0x7C00, 0x3E0, 0x1F, 0};
}

/// Whether Pillow takes the palette for a ramp of greys, and the pixels for greys or bits.
bool is_ramp(Bytes palette, std::size_t entry_bytes, std::size_t colors) noexcept {
  for (std::size_t i = 0; i < colors; ++i) {
    const std::size_t grey = colors == 2 ? 255 * i : i;
    const Bytes color = palette.subspan(i * entry_bytes, 3);
    if (color[0] != grey || color[1] != grey || color[2] != grey) return false;
  }
  return true;
}

/// Colours behind the last of the palette are black, as in Pillow; those of a ramp are greys.
/// False for a ramp that Pillow reads in another way than its bits say.
bool read_palette(Bytes palette, std::size_t entry_bytes, std::size_t colors,
                  BmpHeader& header) noexcept {
  const bool ramp = is_ramp(palette, entry_bytes, colors);
  if (ramp && (colors <= 2 ? header.bits != 1 : header.bits != 8)) return false;
  for (std::size_t i = 0; i < 256; ++i) {
    std::uint8_t* color = header.palette.data() + 4 * i;
    color[3] = 255;
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint8_t stored = i < colors ? palette[i * entry_bytes + 2 - c] : 0;
      color[c] = !ramp ? stored : static_cast<std::uint8_t>(header.bits == 1 ? 255 * (i & 1) : i);
    }
  }
  return true;
}

Status read_palette(Bytes file, std::size_t header_bytes, std::uint32_t announced,
                    BmpHeader& header) noexcept {
  const std::size_t entry_bytes = header_bytes == core_header_bytes ? 3 : 4;
  const std::size_t colors = announced != 0 ? announced : std::size_t{1} << header.bits;
  const std::size_t start = file_header_bytes + header_bytes;
  if (colors > 256 || file.size() < start + colors * entry_bytes) return Status::unsupported;
  if (header.start == start) header.start += colors * entry_bytes;
  const bool known = read_palette(file.subspan(start), entry_bytes, colors, header);
  return known ? Status::ok : Status::unsupported;
}

/// Reads header and palette. `truncated` where the file ends before the last row does;
/// `unsupported` for what Pillow shall judge: run lengths, JPEGs and PNGs inside, palettes of more
/// than 256 colours, masks that Pillow does not know.
Status read_bmp_header(Bytes file, BmpHeader& header) noexcept {
  const Reader read(file, true);
  if (!read.has(0, file_header_bytes + 4)) return Status::truncated;
  const std::size_t header_bytes = read.u32(file_header_bytes);
  if (!is_header_size(header_bytes)) return Status::unsupported;
  if (!read.has(0, file_header_bytes + header_bytes)) return Status::truncated;
  header.start = read.u32(10);
  std::uint32_t compression = Compression::raw;
  std::uint32_t colors = 0;
  if (header_bytes == core_header_bytes) {
    header.width = read.u16(18);
    header.height = read.u16(20);
    header.top_down = false;
    header.bits = read.u16(24);
  } else {
    const std::uint32_t height = read.u32(22);
    header.width = read.u32(18);
    header.top_down = file[25] == 0xFF;  // as Pillow tells a negative height
    header.height = header.top_down ? 0U - height : height;
    header.bits = read.u16(28);
    compression = read.u32(30);
    colors = read.u32(46);
  }
  if (header.start == 0 || header.width > INT32_MAX || header.height > INT32_MAX) {
    return Status::unsupported;
  }
  if (header.width == 0 || header.height == 0) return Status::corrupt;
  const bool has_palette = header.bits == 1 || header.bits == 4 || header.bits == 8;
  const bool has_colors = header.bits == 16 || header.bits == 24 || header.bits == 32;
  if (has_palette && compression == Compression::raw) {
    const Status status = read_palette(file, header_bytes, colors, header);
    if (status != Status::ok) return status;
  } else if (!has_colors ||
             (compression != Compression::raw && compression != Compression::bit_fields) ||
             !read_layout(read, header_bytes, compression, header)) {
    return Status::unsupported;
  }
  header.stride = (header.width * header.bits + 31) / 32 * 4;
  // The padding of the last row may be missing.
  const std::size_t rows_bytes =
      (header.height - 1) * header.stride + (header.width * header.bits + 7) / 8;
  if (header.start > file.size()) return Status::truncated;
  return rows_bytes > file.size() - header.start ? Status::truncated : Status::ok;
}

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

class BmpDecoder final : public RegionDecoder {
 public:
  [[nodiscard]] Status open(Bytes file) noexcept override {
    file_ = file;
    return read_bmp_header(file, header_);
  }

  [[nodiscard]] std::size_t width() const noexcept override { return header_.width; }
  [[nodiscard]] std::size_t height() const noexcept override { return header_.height; }
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept override;

 private:
  BmpHeader header_;
  Bytes file_;
};

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

std::unique_ptr<RegionDecoder> make_decoder() {
  return std::make_unique<BmpDecoder>();
}

bool is_bmp(Bytes file) noexcept {
  if (file.size() < 18 || file[0] != 'B' || file[1] != 'M') return false;
  const std::uint32_t header = Reader(file, true).u32(14);
  return header == 12 || (header >= 40 && header <= 124);
}

Size probe_bmp(Bytes file) noexcept {
  const Reader read(file, true);
  if (read.u32(14) == 12) {
    if (!read.has(18, 8)) return truncated_size;
    return {Status::ok, read.u16(20), read.u16(18), read.u16(24) == 32 ? 4 : 3};
  }
  if (!read.has(18, 12)) return truncated_size;
  // A negative height means rows from the top.
  const auto height = static_cast<std::int32_t>(read.u32(22));
  const auto width = static_cast<std::int32_t>(read.u32(18));
  return {Status::ok, std::llabs(std::int64_t{height}), width, read.u16(28) == 32 ? 4 : 3};
}

bool bmp_breaks_off(Bytes file) noexcept {
  BmpHeader header;
  return Reader(file, true).u32(2) > file.size() ||
         read_bmp_header(file, header) == Status::truncated;
}

}  // namespace

const PictureKind bmp_kind{"BMP", "bmp", is_bmp, probe_bmp, bmp_breaks_off, make_decoder};

}  // namespace fastio
