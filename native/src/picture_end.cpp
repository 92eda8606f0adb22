#include "fastio/picture_end.h"

#include <algorithm>
#include <cstring>

#include "fastio/bmp.h"
#include "fastio/pnm.h"
#include "probe_headers.h"

namespace fastio {
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
