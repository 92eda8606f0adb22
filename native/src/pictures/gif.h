/// The first frame of a GIF into pixels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

namespace fastio {

/// What stands before the pixels of the first frame.
struct GifFrame {
  std::size_t width = 0;  ///< of the picture, which holds screen and frame
  std::size_t height = 0;
  Region region{};  ///< that the frame fills
  bool interlaced = false;
  int transparent = -1;                         ///< the index that is; -1: none
  std::array<std::uint8_t, 4 * 256> palette{};  ///< RGBA
  std::size_t code_bits = 0;                    ///< of an index
  std::size_t data_start = 0;                   ///< of the first block of codes
};

/// Reads up to the pixels of the first frame, as Pillow does. `unsupported` where Pillow does
/// something of its own: empty extensions, palettes that are ramps of greys beside others.
[[nodiscard]] Status read_gif_frame(Bytes file, GifFrame& frame) noexcept;

/// Decodes one file after another; keeps its memory. Not thread-safe: one per thread.
class GifDecoder {
 public:
  /// Reads the headers of a file, whose bytes must stay until the last call of `decode`.
  /// `truncated` where the file is too small for the frame that it announces.
  [[nodiscard]] Status open(Bytes file) noexcept;

  [[nodiscard]] std::size_t width() const noexcept { return frame_.width; }
  [[nodiscard]] std::size_t height() const noexcept { return frame_.height; }

  /// Writes a region of the opened file's first frame to `out`, which has its size: pixels as
  /// Pillow's convert("L"), ("RGB") or ("RGBA"). `bad_shape` where the region leaves the picture,
  /// `unsupported` for codes that no encoder writes, which Pillow shall judge.
  ///
  /// Damage behind the last row needed is not looked at (the checksum of the file sees it).
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept;

 private:
  [[nodiscard]] Status join_blocks() noexcept;
  [[nodiscard]] Status expand(std::size_t pixels) noexcept;

  GifFrame frame_;
  Bytes file_;
  Bytes codes_;
  Scratch joined_;   // the codes without the lengths of their blocks
  Scratch indices_;  // the frame's pixels in the order of the file
};

}  // namespace fastio
