#include <algorithm>
#include <cstring>
#include <utility>

#include "fastio/gif.h"

namespace fastio {
namespace {

constexpr std::size_t screen_bytes = 13;

/// Walks through a file. What lies behind its end reads as zeros and is noted.
class Walk {
 public:
  explicit Walk(Bytes file) noexcept : file_(file) {}

  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  [[nodiscard]] bool is_over() const noexcept { return at_ > file_.size(); }

  std::uint8_t u8() noexcept {
    ++at_;
    return is_over() ? std::uint8_t{0} : file_[at_ - 1];
  }
  std::size_t u16() noexcept {
    const std::size_t low = u8();
    return low | std::size_t{u8()} << 8;
  }
  Bytes take(std::size_t size) noexcept {
    const std::size_t start = std::min(at_, file_.size());
    at_ += size;
    return is_over() ? Bytes() : file_.subspan(start, size);
  }
  /// A block of data behind its length; empty for the last of several.
  Bytes block() noexcept { return take(u8()); }

 private:
  const Bytes file_;
  std::size_t at_ = 0;
};

/// The colours of a table, and whether Pillow takes its indices for greys instead.
struct ColorTable {
  Bytes colors;
  bool is_ramp = false;

  [[nodiscard]] static ColorTable read(Walk& walk, std::uint8_t flags) noexcept {
    if ((flags & 0x80) == 0) return {};
    ColorTable table{walk.take(std::size_t{3} << ((flags & 7) + 1)), true};
    for (std::size_t i = 0; i < table.colors.size(); ++i) {
      if (table.colors[i] != i / 3) table.is_ramp = false;
    }
    return table;
  }
};

/// An extension behind its first byte. False for one that Pillow reads in a way of its own.
bool read_extension(Walk& walk, GifFrame& frame) noexcept {
  constexpr std::uint8_t graphic_control = 249;
  constexpr std::uint8_t comment = 254;
  constexpr std::uint8_t application = 255;
  const std::uint8_t label = walk.u8();
  Bytes block = walk.block();
  if (block.empty()) return label == comment;
  if (label == graphic_control) {
    if (block.size() < 4) return false;
    if ((block[0] & 1) != 0) frame.transparent = block[3];
  }
  constexpr char loops[] = "NETSCAPE2.0";
  const bool is_loops = label == application && block.size() >= sizeof loops - 1 &&
                        std::memcmp(block.data(), loops, sizeof loops - 1) == 0;
  std::size_t blocks = 0;
  for (; !block.empty(); ++blocks) block = walk.block();
  return !is_loops || blocks > 1;
}

void fill_palette(const ColorTable& table, GifFrame& frame) noexcept {
  const bool is_grey = table.colors.empty() || table.is_ramp;
  for (std::size_t i = 0; i < 256; ++i) {
    std::uint8_t* color = frame.palette.data() + 4 * i;
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t at = 3 * i + c;
      // Behind the last colour all are black, as in Pillow.
      const std::uint8_t stored = at < table.colors.size() ? table.colors[at] : std::uint8_t{0};
      color[c] = is_grey ? static_cast<std::uint8_t>(i) : stored;
    }
    color[3] = std::cmp_equal(frame.transparent, i) ? 0 : 255;
  }
}

}  // namespace

Status read_gif_frame(Bytes file, GifFrame& frame) noexcept {
  constexpr std::uint8_t extension = 0x21;
  constexpr std::uint8_t descriptor = 0x2C;
  constexpr std::uint8_t trailer = 0x3B;
  if (file.size() < screen_bytes) return Status::truncated;
  frame = GifFrame{};
  Walk walk(file);
  walk.take(6);
  frame.width = walk.u16();
  frame.height = walk.u16();
  const std::uint8_t screen_flags = walk.u8();
  walk.take(2);
  const ColorTable global = ColorTable::read(walk, screen_flags);
  for (std::uint8_t mark = walk.u8(); mark != descriptor; mark = walk.u8()) {
    if (walk.is_over()) return Status::truncated;
    if (mark == trailer) return Status::unsupported;
    // Pillow passes over bytes that begin nothing.
    if (mark == extension && !read_extension(walk, frame)) {
      return walk.is_over() ? Status::truncated : Status::unsupported;
    }
  }
  frame.region.x = walk.u16();
  frame.region.y = walk.u16();
  frame.region.width = walk.u16();
  frame.region.height = walk.u16();
  const std::uint8_t flags = walk.u8();
  const ColorTable local = ColorTable::read(walk, flags);
  frame.code_bits = walk.u8();
  if (walk.is_over()) return Status::truncated;
  frame.interlaced = (flags & 64) != 0;
  frame.data_start = walk.at();
  frame.width = std::max(frame.width, frame.region.x + frame.region.width);
  frame.height = std::max(frame.height, frame.region.y + frame.region.height);
  if (frame.region.width == 0 || frame.region.height == 0) return Status::unsupported;
  if (frame.code_bits < 2 || frame.code_bits > 8) return Status::unsupported;
  // Pillow keeps the global colours of a frame whose own are a ramp of greys.
  if (local.is_ramp && !global.colors.empty() && !global.is_ramp) return Status::unsupported;
  fill_palette(local.colors.empty() ? global : local, frame);
  return Status::ok;
}

}  // namespace fastio
