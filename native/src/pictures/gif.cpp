// GIFs: recognised and measured here, decoded by Pillow.
#include <algorithm>

#include "pictures/kinds.h"

namespace fastio {
namespace {

bool is_gif(Bytes file) noexcept {
  return has_text(file, 0, "GIF87a") || has_text(file, 0, "GIF89a");
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

/// A GIF may have bytes behind its trailer.
bool gif_breaks_off(Bytes file) noexcept {
  constexpr std::uint8_t trailer = 0x3B;
  return file.back() != trailer;
}

}  // namespace

const PictureKind gif_kind{"GIF", "gif", is_gif, probe_gif, gif_breaks_off, nullptr};

}  // namespace fastio
