#include "fastio/png.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fastio/png_pixels.h"
#include "fastio/unfilter.h"

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

}  // namespace fastio
