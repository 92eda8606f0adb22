#include "pictures/probe.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "pictures/bmp.h"
#include "pictures/pnm.h"
#include "png/chunks.h"

namespace fastio {
namespace {

bool begins(Bytes file, std::size_t at, const char* text, std::size_t size) noexcept {
  return file.size() >= at + size && std::memcmp(file.data() + at, text, size) == 0;
}

Size probe_png(Bytes file) noexcept {
  PngHeader header;
  const Status status = read_png_header(file, header);
  if (status != Status::ok) return {status, 0, 0, 0};
  const int channels = header.color == PngColor::palette ? 3 : header.samples();
  return {Status::ok, header.height, header.width, channels};
}

Size probe_size(Bytes file, ImageKind kind) noexcept {
  switch (kind) {
    case ImageKind::jpeg: {
      std::uint32_t marker = 0;
      return probe_jpeg(file, marker);
    }
    case ImageKind::png: return probe_png(file);
    case ImageKind::gif: return probe_gif(file);
    case ImageKind::bmp: return probe_bmp(file);
    case ImageKind::webp: return probe_webp(file);
    case ImageKind::tiff: return probe_tiff(file);
    case ImageKind::pnm: return probe_pnm(file);
    case ImageKind::unknown: break;
  }
  return {file.size() < signature_bytes ? Status::truncated : Status::not_image, 0, 0, 0};
}

class ProbeTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.probe"; }

  ProbeTask(std::unique_ptr<Bytes[]> spans, bool verify, std::int32_t* out) noexcept
      : spans_(std::move(spans)), verify_(verify), out_(out) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      const ImageInfo info = probe_image(spans_[i]);
      std::int32_t* row = out_ + 5 * i;
      row[0] = static_cast<std::int32_t>(checked(info, spans_[i]));
      row[1] = info.height;
      row[2] = info.width;
      row[3] = info.channels;
      row[4] = static_cast<std::int32_t>(info.kind);
    }
  }

 private:
  [[nodiscard]] Status checked(const ImageInfo& info, Bytes file) const noexcept {
    if (!verify_ || info.status != Status::ok) return info.status;
    if (info.kind == ImageKind::png) {
      const Status status = check_png_chunks(file);
      return status == Status::corrupt ? Status::truncated : status;  // decoding says which
    }
    return may_break_off(file, info.kind) ? Status::truncated : Status::ok;
  }

  const std::unique_ptr<Bytes[]> spans_;
  const bool verify_;
  std::int32_t* const out_;
};

}  // namespace

ImageKind image_kind(Bytes file) noexcept {
  if (begins(file, 0, "\xFF\xD8\xFF", 3)) return ImageKind::jpeg;
  if (begins(file, 0, "\x89PNG\r\n\x1A\n", 8)) return ImageKind::png;
  if (begins(file, 0, "GIF87a", 6) || begins(file, 0, "GIF89a", 6)) return ImageKind::gif;
  if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WEBP", 4)) return ImageKind::webp;
  if (begins(file, 0, "II*\0", 4) || begins(file, 0, "MM\0*", 4)) return ImageKind::tiff;
  if (is_bmp(file)) return ImageKind::bmp;
  if (is_pnm(file)) return ImageKind::pnm;
  return ImageKind::unknown;
}

ImageInfo probe_image(Bytes file) noexcept {
  const ImageKind kind = image_kind(file);
  const Size size = probe_size(file, kind);
  if (size.status != Status::ok) return {size.status, 0, 0, 0, kind};
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
  const bool positive = size.height > 0 && size.width > 0;
  if (!positive || size.height > largest || size.width > largest) {
    return {Status::corrupt, 0, 0, 0, kind};
  }
  return {Status::ok, static_cast<std::int32_t>(size.height), static_cast<std::int32_t>(size.width),
          size.channels, kind};
}

bool read_jpeg_frame(Bytes file, JpegFrame& frame) noexcept {
  if (image_kind(file) != ImageKind::jpeg) return false;
  std::uint32_t marker = 0;
  const Size size = probe_jpeg(file, marker);
  if (size.status != Status::ok) return false;
  frame = {marker % 4 == 2, size.channels};  // C2, C6, CA, CE
  return true;
}

std::unique_ptr<Task> probe_task(std::unique_ptr<Bytes[]> spans, bool verify,
                                 std::int32_t* out) noexcept {
  return std::make_unique<ProbeTask>(std::move(spans), verify, out);
}

namespace {

constexpr Size truncated_size{Status::truncated, 0, 0, 0};
constexpr Size corrupt_size{Status::corrupt, 0, 0, 0};

/// Numbers at places of a file, in either byte order. The caller has checked the size.
class Reader {
 public:
  Reader(Bytes file, bool little) noexcept : file_(file), little_(little) {}

  [[nodiscard]] bool has(std::size_t at, std::size_t size) const noexcept {
    return at <= file_.size() && size <= file_.size() - at;
  }
  [[nodiscard]] std::uint32_t u8(std::size_t at) const noexcept { return file_[at]; }
  [[nodiscard]] std::uint32_t u16(std::size_t at) const noexcept {
    return little_ ? u8(at) | u8(at + 1) << 8 : u8(at) << 8 | u8(at + 1);
  }
  [[nodiscard]] std::uint32_t u24(std::size_t at) const noexcept {
    return u16(at) | u8(at + 2) << 16;  // little endian only
  }
  [[nodiscard]] std::uint32_t u32(std::size_t at) const noexcept {
    return little_ ? u16(at) | u16(at + 2) << 16 : u16(at) << 16 | u16(at + 2);
  }

 private:
  const Bytes file_;
  const bool little_;
};

bool is_start_of_frame(std::uint32_t marker) noexcept {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// Where the first frame's descriptor of a GIF lies; 0 where the file ends before it does.
std::size_t gif_frame(const Reader& read) noexcept {
  constexpr std::uint32_t extension = 0x21;
  constexpr std::uint32_t frame = 0x2C;
  const std::uint32_t flags = read.u8(10);
  std::size_t at = 13;
  if ((flags & 0x80) != 0) at += std::size_t{3} << ((flags & 7) + 1);  // the palette
  while (read.has(at, 10)) {
    if (read.u8(at) == frame) return at;
    const bool has_blocks = read.u8(at) == extension;
    ++at;  // Pillow passes over bytes that begin nothing
    if (!has_blocks) continue;
    ++at;
    while (read.has(at, 1) && read.u8(at) != 0) at += 1 + std::size_t{read.u8(at)};
    ++at;
  }
  return 0;
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

}  // namespace

bool is_space(std::uint8_t c) noexcept {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

bool is_bmp(Bytes file) noexcept {
  if (file.size() < 18 || file[0] != 'B' || file[1] != 'M') return false;
  const std::uint32_t header = Reader(file, true).u32(14);
  return header == 12 || (header >= 40 && header <= 124);
}

bool is_pnm(Bytes file) noexcept {
  return file.size() >= 3 && file[0] == 'P' && file[1] >= '1' && file[1] <= '6' &&
         (is_space(file[2]) || file[2] == '#');
}

Size probe_jpeg(Bytes file, std::uint32_t& marker) noexcept {
  const Reader read(file, false);
  std::size_t at = 2;
  for (;;) {
    // Before a marker anything may lie; fill bytes 0xFF are part of it.
    while (read.has(at, 1) && read.u8(at) != 0xFF) ++at;
    while (read.has(at, 1) && read.u8(at) == 0xFF) ++at;
    if (!read.has(at, 1)) return truncated_size;
    marker = read.u8(at++);
    if (marker == 0 || marker == 1 || (marker >= 0xD0 && marker <= 0xD7)) continue;
    if (marker == 0xD8 || marker == 0xD9 || marker == 0xDA) return corrupt_size;
    if (!read.has(at, 2)) return truncated_size;
    const std::size_t length = read.u16(at);
    if (length < 2) return corrupt_size;
    if (is_start_of_frame(marker)) {
      if (!read.has(at, 8)) return truncated_size;
      return {Status::ok, read.u16(at + 3), read.u16(at + 5),
              static_cast<std::int32_t>(read.u8(at + 7))};
    }
    at += length;
  }
}

Size probe_gif(Bytes file) noexcept {
  const Reader read(file, true);
  if (!read.has(6, 7)) return truncated_size;
  std::int64_t width = read.u16(6);
  std::int64_t height = read.u16(8);
  // Pillow makes the picture large enough for its first frame.
  const std::size_t frame = gif_frame(read);
  if (frame != 0) {
    width = std::max<std::int64_t>(width, read.u16(frame + 1) + read.u16(frame + 5));
    height = std::max<std::int64_t>(height, read.u16(frame + 3) + read.u16(frame + 7));
  }
  return {Status::ok, height, width, 3};
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

Size probe_webp(Bytes file) noexcept {
  const Reader read(file, true);
  if (!read.has(12, 18)) return truncated_size;
  const char* kind = reinterpret_cast<const char*>(file.data()) + 12;
  if (std::memcmp(kind, "VP8X", 4) == 0) {
    const bool alpha = (read.u8(20) & 0x10) != 0;
    return {Status::ok, read.u24(27) + 1, read.u24(24) + 1, alpha ? 4 : 3};
  }
  if (std::memcmp(kind, "VP8L", 4) == 0) {
    const std::uint32_t bits = read.u32(21);
    if (read.u8(20) != 0x2F) return corrupt_size;
    const bool alpha = (bits >> 28 & 1) != 0;
    return {Status::ok, (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, alpha ? 4 : 3};
  }
  if (std::memcmp(kind, "VP8 ", 4) != 0) return corrupt_size;
  if (read.u24(23) != 0x2A019D) return corrupt_size;  // the start code of a key frame
  return {Status::ok, read.u16(28) & 0x3FFF, read.u16(26) & 0x3FFF, 3};
}

Size probe_tiff(Bytes file) noexcept {
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

Size probe_pnm(Bytes file) noexcept {
  std::size_t at = 2;
  const std::int64_t width = pnm_number(file, at);
  const std::int64_t height = pnm_number(file, at);
  if (at >= file.size()) return truncated_size;
  return {Status::ok, height, width, file[1] == '3' || file[1] == '6' ? 3 : 1};
}

namespace {

constexpr std::uint8_t marker = 0xFF;
constexpr std::uint8_t end_of_image = 0xD9;
constexpr std::uint8_t start_of_scan = 0xDA;

std::size_t little_u32(Bytes file, std::size_t at) noexcept {
  return std::size_t{file[at]} | std::size_t{file[at + 1]} << 8 | std::size_t{file[at + 2]} << 16 |
         std::size_t{file[at + 3]} << 24;
}

/// Where the first scan of a JPEG begins; the size of the file if there is none. What stands before
/// it may hold a thumbnail with an end marker of its own.
std::size_t first_scan(Bytes file) noexcept {
  std::size_t at = 2;
  for (;;) {
    while (at < file.size() && file[at] != marker) ++at;
    while (at < file.size() && file[at] == marker) ++at;
    if (at >= file.size() || file[at] == start_of_scan) return at;
    const std::uint8_t code = file[at++];
    const bool stands_alone = code <= 1 || (code >= 0xD0 && code <= 0xD7);
    if (stands_alone) continue;
    if (file.size() - at < 2) return file.size();
    const std::size_t length = std::size_t{file[at]} << 8 | file[at + 1];
    at += std::min(length, file.size() - at);
  }
}

/// Cameras add bytes behind the end marker. In a scan 0xFF is followed by 0 or by a marker, so the
/// first end marker there is the picture's.
bool jpeg_breaks_off(Bytes file) noexcept {
  const std::size_t size = file.size();
  if (file[size - 2] == marker && file[size - 1] == end_of_image) return false;
  const std::uint8_t* const end = file.data() + size;
  const std::uint8_t* at = file.data() + first_scan(file);
  while (at < end) {
    const auto left = static_cast<std::size_t>(end - at);
    at = static_cast<const std::uint8_t*>(std::memchr(at, marker, left));
    if (at == nullptr || ++at == end) return true;
    if (*at == end_of_image) return false;
  }
  return true;
}

bool bmp_breaks_off(Bytes file) noexcept {
  BmpHeader header;
  return little_u32(file, 2) > file.size() || read_bmp_header(file, header) == Status::truncated;
}

/// One that PnmDecoder leaves to Pillow: of 16 bits, or of another maximum. Numbers as text have
/// no size that is known.
bool rare_pnm_breaks_off(Bytes file) noexcept {
  const std::size_t channels = file[1] == '6' ? 3 : file[1] == '5' ? 1 : 0;
  std::size_t at = 2;
  const std::int64_t width = pnm_number(file, at);
  const std::int64_t height = pnm_number(file, at);
  const std::int64_t maximum = pnm_number(file, at);
  if (channels == 0 || width <= 0 || height <= 0 || maximum <= 0) return false;
  if (at >= file.size()) return true;
  const std::size_t bytes = maximum > 255 ? 2 : 1;
  const std::size_t stride = static_cast<std::size_t>(width) * channels * bytes;
  return (file.size() - at - 1) / stride < static_cast<std::size_t>(height);
}

bool pnm_breaks_off(Bytes file) noexcept {
  PnmHeader header;
  const Status status = read_pnm_header(file, header);
  return status == Status::unsupported ? rare_pnm_breaks_off(file) : status == Status::truncated;
}

}  // namespace

bool may_break_off(Bytes file, ImageKind kind) noexcept {
  constexpr std::uint8_t gif_trailer = 0x3B;
  constexpr std::size_t riff_header = 8;  // which the size behind RIFF leaves out
  switch (kind) {
    case ImageKind::jpeg: return jpeg_breaks_off(file);
    case ImageKind::gif: return file.back() != gif_trailer;
    case ImageKind::bmp: return bmp_breaks_off(file);
    case ImageKind::webp: return little_u32(file, 4) + riff_header > file.size();
    case ImageKind::pnm: return pnm_breaks_off(file);
    case ImageKind::tiff: return tiff_breaks_off(file);
    case ImageKind::png:
    case ImageKind::unknown: break;
  }
  return false;
}

}  // namespace fastio
