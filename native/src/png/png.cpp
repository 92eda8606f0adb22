#include "png/png.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "pictures/pixels.h"
#include "png/unfilter.h"

namespace fastio {
namespace {

constexpr std::size_t slack = 16;  // the filters read a little beyond the last row

/// One of Adam7's passes: the pixels (x0 + i * dx, y0 + j * dy).
struct Pass {
  std::size_t x0, y0, dx, dy;

  [[nodiscard]] std::size_t columns(std::size_t width) const noexcept {
    return width > x0 ? (width - x0 + dx - 1) / dx : 0;
  }
  [[nodiscard]] std::size_t lines(std::size_t height) const noexcept {
    return height > y0 ? (height - y0 + dy - 1) / dy : 0;
  }
};

constexpr std::array<Pass, 7> adam7_passes{{{0, 0, 8, 8},
                                            {4, 0, 8, 8},
                                            {0, 4, 4, 8},
                                            {2, 0, 4, 4},
                                            {0, 2, 2, 4},
                                            {1, 0, 2, 2},
                                            {0, 1, 1, 2}}};

/// Bytes of the inflated stream. The sizes are those of a picture in memory, so nothing
/// overflows.
std::size_t filtered_bytes(const PngHeader& header) noexcept {
  if (!header.interlaced) return header.height * (1 + header.row_bytes(header.width));
  std::size_t total = 0;
  for (const Pass& pass : adam7_passes) {
    const std::size_t columns = pass.columns(header.width);
    if (columns > 0) total += pass.lines(header.height) * (1 + header.row_bytes(columns));
  }
  return total;
}

/// Whether unfiltered rows are already what the picture wants.
bool is_direct(const PngHeader& header, int channels) noexcept {
  if (header.depth != 8 || header.color == PngColor::palette) return false;
  if (header.color == PngColor::grey_alpha) return false;
  return header.samples() == channels;
}

/// Rows of a picture without gaps, to be unfiltered from `data`.
FilteredRows filtered_rows(const PngHeader& header, const std::uint8_t* data, std::size_t columns,
                           std::size_t lines) noexcept {
  return {data, lines, header.row_bytes(columns),
          std::max<std::size_t>(header.bits_per_pixel() / 8, 1)};
}

/// Working rows: zeros above the first row, unpacked samples, converted pixels.
struct WorkingRows {
  std::uint8_t* zeros = nullptr;
  std::uint8_t* samples = nullptr;
  std::uint8_t* pixels = nullptr;

  WorkingRows(const PngHeader& header, Scratch& memory) noexcept {
    const std::size_t zero_bytes = header.row_bytes(header.width) + slack;
    const std::size_t sample_bytes = std::size_t{header.width} * 4;
    zeros = memory.reserve(zero_bytes + 2 * sample_bytes);
    if (zeros == nullptr) return;
    std::memset(zeros, 0, zero_bytes);
    samples = zeros + zero_bytes;
    pixels = samples + sample_bytes;
  }
};

}  // namespace

void PngDecoder::FreeInflater::operator()(libdeflate_decompressor* inflater) const noexcept {
  libdeflate_free_decompressor(inflater);
}

PngDecoder::PngDecoder() noexcept = default;
PngDecoder::~PngDecoder() = default;

Status PngDecoder::decode(Bytes file, const Picture& out, bool verify_data) noexcept {
  Status status = read_png_chunks(file, verify_data, chunks_);
  if (status != Status::ok) return status;
  const PngHeader& header = chunks_.header;
  if (header.height != out.height || header.width != out.width) return Status::bad_shape;
  std::uint8_t* filtered = nullptr;
  status = inflate(filtered_bytes(header), filtered);
  if (status != Status::ok) return status;
  return header.interlaced ? decode_interlaced(filtered, out) : decode_plain(filtered, out);
}

Status PngDecoder::inflate(std::size_t size, std::uint8_t*& filtered) noexcept {
  if (!inflater_) inflater_.reset(libdeflate_alloc_decompressor());
  filtered = filtered_.reserve(size + slack);
  Bytes stream = chunks_.data.front();
  if (chunks_.data.size() > 1) {
    std::uint8_t* joined = joined_.reserve(std::max<std::size_t>(chunks_.data_size, 1));
    if (joined == nullptr) return Status::no_memory;
    std::size_t filled = 0;
    for (const Bytes piece : chunks_.data) {
      if (!piece.empty()) std::memcpy(joined + filled, piece.data(), piece.size());
      filled += piece.size();
    }
    stream = {joined, filled};
  }
  if (!inflater_ || filtered == nullptr) return Status::no_memory;
  const libdeflate_result result = libdeflate_zlib_decompress(
      inflater_.get(), stream.data(), stream.size(), filtered, size, nullptr);
  if (result != LIBDEFLATE_SUCCESS) return Status::corrupt;
  std::memset(filtered + size, 0, slack);
  return Status::ok;
}

Status PngDecoder::decode_plain(std::uint8_t* filtered, const Picture& out) noexcept {
  const PngHeader& header = chunks_.header;
  const WorkingRows working(header, rows_);
  if (working.zeros == nullptr) return Status::no_memory;
  const FilteredRows rows = filtered_rows(header, filtered, out.width, out.height);
  const bool direct = is_direct(header, out.channels) && !(chunks_.has_key && out.channels == 4);
  std::uint8_t* unfiltered = direct ? out.data : filtered;
  if (!unfilter(rows, working.zeros, unfiltered, simd_level())) return Status::corrupt;
  if (direct) return Status::ok;
  for (std::size_t y = 0; y < out.height; ++y) {
    if (!convert_png_row(chunks_, filtered + y * rows.row_bytes, out.width, out.channels,
                         working.samples, out.row(y))) {
      return Status::unsupported;
    }
  }
  return Status::ok;
}

Status PngDecoder::decode_interlaced(std::uint8_t* filtered, const Picture& out) noexcept {
  const PngHeader& header = chunks_.header;
  const WorkingRows working(header, rows_);
  if (working.zeros == nullptr) return Status::no_memory;
  const auto channels = static_cast<std::size_t>(out.channels);
  for (const Pass& pass : adam7_passes) {
    const std::size_t columns = pass.columns(out.width);
    const std::size_t lines = pass.lines(out.height);
    if (columns == 0 || lines == 0) continue;
    const FilteredRows rows = filtered_rows(header, filtered, columns, lines);
    if (!unfilter(rows, working.zeros, filtered, simd_level())) return Status::corrupt;
    for (std::size_t j = 0; j < lines; ++j) {
      if (!convert_png_row(chunks_, filtered + j * rows.row_bytes, columns, out.channels,
                           working.samples, working.pixels)) {
        return Status::unsupported;
      }
      std::uint8_t* row = out.row(pass.y0 + j * pass.dy) + pass.x0 * channels;
      for (std::size_t i = 0; i < columns; ++i) {
        std::memcpy(row + i * pass.dx * channels, working.pixels + i * channels, channels);
      }
    }
    filtered += lines * (1 + rows.row_bytes);
  }
  return Status::ok;
}

Status PngDecoder::decode_numbers(Bytes file, const Region& region, bool verify_data,
                                  NumberView& out) noexcept {
  Status status = read_png_chunks(file, verify_data, chunks_);
  if (status != Status::ok) return status;
  const PngHeader& header = chunks_.header;
  if (!region.is_inside(header.width, header.height)) return Status::bad_shape;
  const std::size_t size = filtered_bytes(header);
  if (size / most_inflated > file.size()) return Status::truncated;
  std::uint8_t* filtered = nullptr;
  status = inflate(size, filtered);
  if (status != Status::ok) return status;
  out.channels = static_cast<std::size_t>(header.samples());
  out.number_bytes = header.depth == 16 ? 2 : 1;
  return header.interlaced ? interlaced_numbers(filtered, region, out)
                           : plain_numbers(filtered, region, out);
}

Status PngDecoder::plain_numbers(std::uint8_t* filtered, const Region& region,
                                 NumberView& out) noexcept {
  const PngHeader& header = chunks_.header;
  const WorkingRows working(header, rows_);
  if (working.zeros == nullptr) return Status::no_memory;
  const FilteredRows rows = filtered_rows(header, filtered, header.width, region.y + region.height);
  if (!unfilter(rows, working.zeros, filtered, simd_level())) return Status::corrupt;
  const std::uint8_t* first = filtered + region.y * rows.row_bytes;
  if (header.depth == 8) {
    out.data = first + region.x * out.channels;
    out.stride = rows.row_bytes;
    return Status::ok;
  }
  out.stride = region.width * out.channels * out.number_bytes;
  std::uint8_t* numbers = numbers_.reserve(region.height * out.stride);
  if (numbers == nullptr) return Status::no_memory;
  out.data = numbers;
  for (std::size_t y = 0; y < region.height; ++y) {
    expand_png_numbers(header, first + y * rows.row_bytes, region.x, region.width,
                       numbers + y * out.stride);
  }
  return Status::ok;
}

Status PngDecoder::interlaced_numbers(std::uint8_t* filtered, const Region& region,
                                      NumberView& out) noexcept {
  const PngHeader& header = chunks_.header;
  const std::size_t pixel_bytes = out.channels * out.number_bytes;
  const WorkingRows working(header, rows_);
  out.stride = header.width * pixel_bytes;
  std::uint8_t* numbers = numbers_.reserve(header.height * out.stride + header.width * pixel_bytes);
  if (working.zeros == nullptr || numbers == nullptr) return Status::no_memory;
  std::uint8_t* expanded = numbers + header.height * out.stride;  // one row of a pass
  out.data = numbers + region.y * out.stride + region.x * pixel_bytes;
  for (const Pass& pass : adam7_passes) {
    const std::size_t columns = pass.columns(header.width);
    const std::size_t lines = pass.lines(header.height);
    if (columns == 0 || lines == 0) continue;
    const FilteredRows rows = filtered_rows(header, filtered, columns, lines);
    if (!unfilter(rows, working.zeros, filtered, simd_level())) return Status::corrupt;
    for (std::size_t j = 0; j < lines; ++j) {
      expand_png_numbers(header, filtered + j * rows.row_bytes, 0, columns, expanded);
      std::uint8_t* row = numbers + (pass.y0 + j * pass.dy) * out.stride + pass.x0 * pixel_bytes;
      for (std::size_t i = 0; i < columns; ++i) {
        std::memcpy(row + i * pass.dx * pixel_bytes, expanded + i * pixel_bytes, pixel_bytes);
      }
    }
    filtered += lines * (1 + rows.row_bytes);
  }
  return Status::ok;
}

namespace {

/// Samples of 1, 2 or 4 bits to a byte each; grey is stretched to 0..255.
void unpack(const PngHeader& header, const std::uint8_t* row, std::size_t width,
            std::uint8_t* out) noexcept {
  const int depth = header.depth;
  const unsigned mask = (1U << depth) - 1;
  const unsigned scale = header.color == PngColor::grey ? 255 / mask : 1;
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t bit = x * static_cast<std::size_t>(depth);
    const unsigned sample = (row[bit / 8] >> (8 - depth - static_cast<int>(bit % 8))) & mask;
    out[x] = static_cast<std::uint8_t>(sample * scale);
  }
}

/// The high byte of every 16-bit sample; but grey is clipped, as Pillow does: 256 is white.
void narrow(const PngHeader& header, const std::uint8_t* row, std::size_t width,
            std::uint8_t* out) noexcept {
  const bool clip = header.color == PngColor::grey;
  const std::size_t samples = width * static_cast<std::size_t>(header.samples());
  for (std::size_t i = 0; i < samples; ++i) {
    const std::uint8_t high = row[2 * i];
    out[i] = clip ? (high != 0 ? 255 : row[2 * i + 1]) : high;
  }
}

/// Writes one pixel of the wanted channels.
template <int channel_count>
void put(std::uint8_t* out, std::uint8_t r, std::uint8_t g, std::uint8_t b,
         std::uint8_t a) noexcept {
  if constexpr (channel_count == 1) {
    out[0] = luma(r, g, b);
  } else {
    out[0] = r;
    out[1] = g;
    out[2] = b;
    if constexpr (channel_count == 4) out[3] = a;
  }
}

/// The key that grey samples are compared with: Pillow maps that of 1 bit and takes the
/// low byte of all others, even when the samples have been stretched or narrowed.
std::uint8_t grey_key(const PngChunks& png) noexcept {
  if (png.header.depth == 1) return png.key[0] != 0 ? 255 : 0;
  return static_cast<std::uint8_t>(png.key[0]);
}

template <int channel_count>
void from_grey(const PngChunks& png, const std::uint8_t* in, std::size_t width,
               std::uint8_t* out) noexcept {
  const std::uint8_t key = grey_key(png);
  for (std::size_t x = 0; x < width; ++x, out += channel_count) {
    const std::uint8_t v = in[x];
    const std::uint8_t alpha = png.has_key && v == key ? 0 : 255;
    if constexpr (channel_count == 1) {
      out[0] = v;
    } else {
      put<channel_count>(out, v, v, v, alpha);
    }
  }
}

template <int channel_count>
void from_grey_alpha(const std::uint8_t* in, std::size_t width, std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, in += 2, out += channel_count) {
    if constexpr (channel_count == 1) {
      out[0] = in[0];
    } else {
      put<channel_count>(out, in[0], in[0], in[0], in[1]);
    }
  }
}

template <int channel_count>
void from_rgb(const PngChunks& png, const std::uint8_t* in, std::size_t width,
              std::uint8_t* out) noexcept {
  const auto r = static_cast<std::uint8_t>(png.key[0]);
  const auto g = static_cast<std::uint8_t>(png.key[1]);
  const auto b = static_cast<std::uint8_t>(png.key[2]);
  for (std::size_t x = 0; x < width; ++x, in += 3, out += channel_count) {
    const bool keyed = png.has_key && in[0] == r && in[1] == g && in[2] == b;
    put<channel_count>(out, in[0], in[1], in[2], keyed ? 0 : 255);
  }
}

template <int channel_count>
void from_rgba(const std::uint8_t* in, std::size_t width, std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, in += 4, out += channel_count) {
    put<channel_count>(out, in[0], in[1], in[2], in[3]);
  }
}

template <int channel_count>
bool from_palette(const PngChunks& png, const std::uint8_t* in, std::size_t width,
                  std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, out += channel_count) {
    if (in[x] >= png.palette_size) return false;
    const std::uint8_t* entry = &png.palette[std::size_t{4} * in[x]];
    put<channel_count>(out, entry[0], entry[1], entry[2], entry[3]);
  }
  return true;
}

template <int channel_count>
bool convert(const PngChunks& png, const std::uint8_t* in, std::size_t width,
             std::uint8_t* out) noexcept {
  switch (png.header.color) {
    case PngColor::grey: from_grey<channel_count>(png, in, width, out); return true;
    case PngColor::grey_alpha: from_grey_alpha<channel_count>(in, width, out); return true;
    case PngColor::rgb: from_rgb<channel_count>(png, in, width, out); return true;
    case PngColor::rgba: from_rgba<channel_count>(in, width, out); return true;
    case PngColor::palette: return from_palette<channel_count>(png, in, width, out);
  }
  return false;
}

/// Samples of 16 bits in the machine's order.
void widen(const std::uint8_t* in, std::size_t samples, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < samples; ++i) {
    const auto number = static_cast<std::uint16_t>(in[2 * i] << 8 | in[2 * i + 1]);
    std::memcpy(out + 2 * i, &number, 2);
  }
}

}  // namespace

void expand_png_numbers(const PngHeader& header, const std::uint8_t* row, std::size_t first,
                        std::size_t width, std::uint8_t* out) noexcept {
  const auto samples = static_cast<std::size_t>(header.samples());
  if (header.depth == 16) {
    widen(row + 2 * samples * first, samples * width, out);
    return;
  }
  if (header.depth == 8) {
    std::memcpy(out, row + samples * first, samples * width);
    return;
  }
  const auto depth = static_cast<std::size_t>(header.depth);
  const unsigned mask = (1U << depth) - 1;
  const unsigned scale = header.color == PngColor::grey && depth > 1 ? 255 / mask : 1;
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t bit = (first + x) * depth;
    const unsigned sample = (unsigned{row[bit / 8]} >> (8 - depth - bit % 8)) & mask;
    out[x] = static_cast<std::uint8_t>(sample * scale);
  }
}

bool convert_png_row(const PngChunks& png, const std::uint8_t* row, std::size_t width, int channels,
                     std::uint8_t* samples, std::uint8_t* out) noexcept {
  const PngHeader& header = png.header;
  const std::uint8_t* in = row;
  if (header.depth == 16) {
    narrow(header, row, width, samples);
    in = samples;
  } else if (header.depth < 8) {
    unpack(header, row, width, samples);
    in = samples;
  }
  switch (channels) {
    case 1: return convert<1>(png, in, width, out);
    case 3: return convert<3>(png, in, width, out);
    case 4: return convert<4>(png, in, width, out);
    default: return false;
  }
}

}  // namespace fastio
