// TIFFs: recognised and measured here, decoded by Pillow, which also reads the headers of BigTIFFs.
#include <algorithm>
#include <array>
#include <utility>

#include "pictures/kinds.h"

namespace fastio {
namespace {

bool is_big_tiff(Bytes file) noexcept {
  return has_text(file, 0, "II+\0") || has_text(file, 0, "MM\0+");
}

bool is_tiff(Bytes file) noexcept {
  return has_text(file, 0, "II*\0") || has_text(file, 0, "MM\0*") || is_big_tiff(file);
}

/// A TIFF entry's single value (SHORT or LONG), 0 for another type.
std::int64_t tiff_value(const Reader& read, std::size_t entry) noexcept {
  const std::uint32_t type = read.u16(entry + 2);
  if (type == 3) return read.u16(entry + 8);
  return type == 4 ? read.u32(entry + 8) : 0;
}

/// Where the numbers of a TIFF's entry lie, how many, and of how many bytes; 0 of an unknown type.
struct TiffNumbers {
  std::size_t at = 0;
  std::size_t count = 0;
  std::size_t size = 0;
};

TiffNumbers tiff_numbers(const Reader& read, std::size_t entry) noexcept {
  constexpr std::array<std::uint8_t, 14> sizes{0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};
  const std::size_t type = read.u16(entry + 2);
  const std::size_t size = type < sizes.size() ? sizes[type] : 0;
  const std::size_t count = read.u32(entry + 4);
  const std::size_t at = count * size <= 4 ? entry + 8 : read.u32(entry + 8);
  return {at, count, size};
}

/// 0 for a type that is neither SHORT nor LONG.
std::size_t tiff_number(const Reader& read, const TiffNumbers& numbers, std::size_t i) noexcept {
  const std::size_t at = numbers.at + i * numbers.size;
  if (numbers.size == 2) return read.u16(at);
  return numbers.size == 4 ? read.u32(at) : 0;
}

Size probe_tiff(Bytes file) noexcept {
  if (is_big_tiff(file)) return {Status::unsupported, 0, 0, 0};
  const Reader read(file, file[0] == 'I');
  if (!read.has(4, 4)) return truncated_size;
  const std::size_t directory = read.u32(4);
  if (!read.has(directory, 2)) return truncated_size;
  const std::size_t entries = read.u16(directory);
  if (!read.has(directory + 2, entries * 12)) return truncated_size;
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t samples = 1;
  bool palette = false;
  bool lies_on_its_side = false;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    const std::int64_t value = tiff_value(read, entry);
    switch (read.u16(entry)) {
      case 256: width = value; break;
      case 257: height = value; break;
      case 262: palette = value == 3; break;
      case 274: lies_on_its_side = value >= 5 && value <= 8; break;  // the orientation
      case 277: samples = value; break;
      default: break;
    }
  }
  if (samples < 1 || samples > 255) return corrupt_size;
  if (lies_on_its_side) std::swap(height, width);  // Pillow turns it while decoding
  return {Status::ok, height, width, palette ? 3 : static_cast<std::int32_t>(samples)};
}

/// Whether the file ends before its first directory does, or before a value, strip or tile that
/// this names. False where it says of none how large they are.
bool tiff_breaks_off(Bytes file) noexcept {
  const Reader read(file, file[0] == 'I');
  if (!read.has(4, 4)) return true;
  const std::size_t directory = read.u32(4);
  if (!read.has(directory, 2)) return true;
  const std::size_t entries = read.u16(directory);
  constexpr std::size_t place_of_next_directory = 4;
  if (!read.has(directory + 2, entries * 12 + place_of_next_directory)) return true;
  TiffNumbers starts;
  TiffNumbers sizes;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    const TiffNumbers numbers = tiff_numbers(read, entry);
    if (!read.has(numbers.at, numbers.count * numbers.size)) return true;
    switch (read.u16(entry)) {
      case 273:  // strips
      case 324: starts = numbers; break;
      case 279:
      case 325: sizes = numbers; break;  // tiles
      default: break;
    }
  }
  if (starts.size == 0 || sizes.size == 0) return false;
  const std::size_t count = std::min(starts.count, sizes.count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!read.has(tiff_number(read, starts, i), tiff_number(read, sizes, i))) return true;
  }
  return false;
}

}  // namespace

const PictureKind tiff_kind{"TIFF", "tif tiff", is_tiff, probe_tiff, tiff_breaks_off, nullptr};

}  // namespace fastio
