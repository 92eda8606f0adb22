// JPEGs as a kind of picture: recognised, and measured by their frame header.
#include <algorithm>
#include <cstring>

#include "pictures/kinds.h"
#include "pictures/probe.h"

namespace fastio {
namespace {

bool is_jpeg(Bytes file) noexcept {
  return has_text(file, 0, "\xFF\xD8\xFF");
}

bool is_start_of_frame(std::uint32_t marker) noexcept {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// `marker` becomes that of the frame header.
Size probe_frame(Bytes file, std::uint32_t& marker) noexcept {
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

Size probe_jpeg(Bytes file) noexcept {
  std::uint32_t marker = 0;
  return probe_frame(file, marker);
}

constexpr std::uint8_t marker_start = 0xFF;
constexpr std::uint8_t end_of_image = 0xD9;
constexpr std::uint8_t start_of_scan = 0xDA;

/// Where the first scan of a JPEG begins; the size of the file if there is none. What stands before
/// it may hold a thumbnail with an end marker of its own.
std::size_t first_scan(Bytes file) noexcept {
  std::size_t at = 2;
  for (;;) {
    while (at < file.size() && file[at] != marker_start) ++at;
    while (at < file.size() && file[at] == marker_start) ++at;
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
  if (file[size - 2] == marker_start && file[size - 1] == end_of_image) return false;
  const std::uint8_t* const end = file.data() + size;
  const std::uint8_t* at = file.data() + first_scan(file);
  while (at < end) {
    const auto left = static_cast<std::size_t>(end - at);
    at = static_cast<const std::uint8_t*>(std::memchr(at, marker_start, left));
    if (at == nullptr || ++at == end) return true;
    if (*at == end_of_image) return false;
  }
  return true;
}

}  // namespace

bool read_jpeg_frame(Bytes file, JpegFrame& frame) noexcept {
  if (image_kind(file) != ImageKind::jpeg) return false;
  std::uint32_t marker = 0;
  const Size size = probe_frame(file, marker);
  if (size.status != Status::ok) return false;
  frame = {marker % 4 == 2, size.channels};  // C2, C6, CA, CE
  return true;
}

const PictureKind jpeg_kind{"JPEG", "jpg jpeg jfif", is_jpeg, probe_jpeg, jpeg_breaks_off, nullptr};

}  // namespace fastio
