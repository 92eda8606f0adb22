/// BMP into pixels: nothing but the rows and columns that are wanted is looked at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

namespace fastio {

/// What the header says, once it has been checked against the size of the file.
struct BmpHeader {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t bits = 0;  ///< a pixel: 1, 4 and 8 with a palette, 16, 24, 32
  bool top_down = false;
  std::size_t start = 0;                 ///< of the first row that is stored
  std::size_t stride = 0;                ///< from one row to the next
  std::array<std::uint8_t, 4> places{};  ///< of red, green, blue and alpha in 24 and 32 bits
  bool has_alpha = false;
  std::size_t green_bits = 5;                   ///< of 16; red and blue have 5
  std::array<std::uint8_t, 4 * 256> palette{};  ///< RGBA
};

/// Reads header and palette. `truncated` where the file ends before the last row does;
/// `unsupported` for what Pillow shall judge: run lengths, JPEGs and PNGs inside, palettes of more
/// than 256 colours, masks that Pillow does not know.
[[nodiscard]] Status read_bmp_header(Bytes file, BmpHeader& header) noexcept;

/// Decodes one file after another. Not thread-safe: one per thread.
class BmpDecoder {
 public:
  /// Reads the header of a file, whose bytes must stay until the last call of `decode`.
  [[nodiscard]] Status open(Bytes file) noexcept;

  [[nodiscard]] std::size_t width() const noexcept { return header_.width; }
  [[nodiscard]] std::size_t height() const noexcept { return header_.height; }

  /// Writes a region of the opened file to `out`, which has its size: pixels as Pillow's
  /// convert("L"), ("RGB") or ("RGBA"). `bad_shape` where the region leaves the picture.
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept;

 private:
  BmpHeader header_;
  Bytes file_;
};

}  // namespace fastio
