#include "pictures/gif.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fastio {
namespace {

constexpr std::size_t most_codes = 4096;
constexpr std::size_t slack = 16;  // strings are copied 8 bytes at a time

/// Where the string of a code stands in what has been written. Every string but those of one
/// index is an earlier one and the index behind it.
struct Code {
  std::uint32_t start;
  std::uint32_t size;
};

/// Codes of 3 to 12 bits, lowest bits first.
class CodeReader {
 public:
  explicit CodeReader(Bytes codes) noexcept : codes_(codes) {}

  /// False at the end of the codes.
  [[nodiscard]] bool next(std::size_t bits, std::size_t& code) noexcept {
    while (filled_ < bits) {
      if (at_ + 4 <= codes_.size()) {
        std::uint32_t word = 0;
        std::memcpy(&word, codes_.data() + at_, 4);
        waiting_ |= std::uint64_t{word} << filled_;
        at_ += 4;
        filled_ += 32;
      } else if (at_ < codes_.size()) {
        waiting_ |= std::uint64_t{codes_[at_++]} << filled_;
        filled_ += 8;
      } else {
        return false;
      }
    }
    code = static_cast<std::size_t>(waiting_ & ((std::uint64_t{1} << bits) - 1));
    waiting_ >>= bits;
    filled_ -= bits;
    return true;
  }

 private:
  const Bytes codes_;
  std::size_t at_ = 0;
  std::uint64_t waiting_ = 0;
  std::size_t filled_ = 0;
};

/// Copies `size` bytes from `from`, before `to`; each byte may be one that was just written.
/// Writes up to 7 bytes more.
void copy_string(const std::uint8_t* from, std::uint8_t* to, std::size_t size) noexcept {
  constexpr std::size_t word = 8;
  if (static_cast<std::size_t>(to - from) >= word) {
    for (std::size_t i = 0; i < size; i += word) std::memcpy(to + i, from + i, word);
  } else {
    for (std::size_t i = 0; i < size; ++i) to[i] = from[i];
  }
}

/// The place in the file of row y of an interlaced frame: rows 0, 8...; 4, 12...; 2, 6...; 1, 3...
std::size_t interlaced_place(std::size_t y, std::size_t height) noexcept {
  if (y % 8 == 0) return y / 8;
  std::size_t before = (height + 7) / 8;
  if (y % 8 == 4) return before + y / 8;
  before += (height + 3) / 8;
  if (y % 4 == 2) return before + y / 4;
  return before + (height + 1) / 4 + y / 2;
}

template <std::size_t channels>
void put_row(const std::uint8_t* indices, std::size_t width, const std::uint8_t* colors,
             std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, out += channels) {
    const std::uint8_t* color = colors + 4 * indices[x];
    for (std::size_t c = 0; c < channels; ++c) out[c] = color[c];
  }
}

/// A range of rows or columns of the picture that the frame fills.
struct Overlap {
  std::size_t start;
  std::size_t stop;
};

Overlap overlap(std::size_t start, std::size_t size, std::size_t frame_start,
                std::size_t frame_size) noexcept {
  const std::size_t first = std::max(start, frame_start);
  return {first, std::max(first, std::min(start + size, frame_start + frame_size))};
}

}  // namespace

Status GifDecoder::open(Bytes file) noexcept {
  file_ = file;
  const Status status = read_gif_frame(file, frame_);
  if (status != Status::ok) return status;
  // The longest strings that n codes can have are of 1, 2, ... n indices, of 3 bits and more each.
  const std::size_t most_strings = (file.size() - frame_.data_start) * 8 / 3 + 1;
  const std::size_t pixels = frame_.region.width * frame_.region.height;
  return pixels / most_codes > most_strings ? Status::truncated : Status::ok;
}

Status GifDecoder::join_blocks() noexcept {
  std::uint8_t* joined = joined_.reserve(file_.size());
  if (joined == nullptr) return Status::no_memory;
  std::size_t filled = 0;
  for (std::size_t at = frame_.data_start; at < file_.size();) {
    const std::size_t size = file_[at++];
    if (size == 0 || size > file_.size() - at) break;  // Pillow, too, takes whole blocks only
    std::memcpy(joined + filled, file_.data() + at, size);
    filled += size;
    at += size;
  }
  codes_ = {joined, filled};
  return Status::ok;
}

/// Writes the first `pixels` indices of the frame.
Status GifDecoder::expand(std::size_t pixels) noexcept {
  std::uint8_t* out = indices_.reserve(pixels + slack);
  if (out == nullptr) return Status::no_memory;
  const std::size_t clear = std::size_t{1} << frame_.code_bits;
  std::array<Code, most_codes> table;
  CodeReader reader(codes_);
  std::size_t bits = frame_.code_bits + 1;
  std::size_t next = clear + 2;
  Code last{0, 0};  // of size 0 behind a clear code
  std::size_t written = 0;
  while (written < pixels) {
    std::size_t code = 0;
    if (!reader.next(bits, code)) return Status::unsupported;
    if (code == clear) {
      bits = frame_.code_bits + 1;
      next = clear + 2;
      last.size = 0;
      continue;
    }
    if (code == clear + 1) return Status::unsupported;  // the end, too early
    if (last.size != 0 && next < most_codes) {
      table[next] = {last.start, last.size + 1};
      if (++next == std::size_t{1} << bits && bits < 12) ++bits;
    } else if (last.size == 0 && code > clear) {
      return Status::unsupported;
    }
    last.start = static_cast<std::uint32_t>(written);
    if (code < clear) {
      out[written++] = static_cast<std::uint8_t>(code);
      last.size = 1;
      continue;
    }
    if (code >= next) return Status::unsupported;
    const Code& string = table[code];
    last.size = static_cast<std::uint32_t>(std::min<std::size_t>(string.size, pixels - written));
    copy_string(out + string.start, out + written, last.size);
    written += last.size;
  }
  return Status::ok;
}

Status GifDecoder::decode(const Region& region, const Picture& out) noexcept {
  if (!region.is_inside(frame_.width, frame_.height)) return Status::bad_shape;
  const Region& frame = frame_.region;
  const Overlap rows = overlap(region.y, region.height, frame.y, frame.height);
  const Overlap columns = overlap(region.x, region.width, frame.x, frame.width);
  const std::size_t last_row = frame_.interlaced ? frame.height : rows.stop - frame.y;
  if (rows.start < rows.stop && columns.start < columns.stop) {
    Status status = join_blocks();
    if (status == Status::ok) status = expand(last_row * frame.width);
    if (status != Status::ok) return status;
  }
  const std::uint8_t* indices = indices_.reserve(0);
  const auto channels = static_cast<std::size_t>(out.channels);
  const auto put = channels == 1 ? put_row<1> : channels == 3 ? put_row<3> : put_row<4>;
  std::array<std::uint8_t, 4 * 256> colors = frame_.palette;
  for (std::size_t i = 0; channels == 1 && i < colors.size(); i += 4) {
    colors[i] = luma(colors[i], colors[i + 1], colors[i + 2]);
  }
  // What the frame leaves is transparent, or has the first colour.
  const std::size_t rest =
      frame_.transparent < 0 ? 0 : static_cast<std::size_t>(frame_.transparent);
  for (std::size_t y = region.y; y < region.y + region.height; ++y) {
    std::uint8_t* row = out.row(y - region.y);
    const bool in_frame = y >= rows.start && y < rows.stop;
    if (!in_frame || columns.stop - columns.start < region.width) {
      for (std::size_t x = 0; x < region.width; ++x) {
        std::memcpy(row + x * channels, colors.data() + 4 * rest, channels);
      }
    }
    if (!in_frame) continue;
    const std::size_t line =
        frame_.interlaced ? interlaced_place(y - frame.y, frame.height) : y - frame.y;
    put(indices + line * frame.width + (columns.start - frame.x), columns.stop - columns.start,
        colors.data(), row + (columns.start - region.x) * channels);
  }
  return Status::ok;
}

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
