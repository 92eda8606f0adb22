/// Binary PNM (P4, P5, P6) into pixels: nothing but the rows and columns that are wanted is read.
#pragma once

#include <cstddef>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

namespace fastio {

/// What the header says, once it has been checked against the size of the file.
struct PnmHeader {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t bits = 0;  ///< a pixel: 1 (P4, where a set bit is black), 8 (P5) or 24 (P6)
  std::size_t start = 0;
  std::size_t stride = 0;  ///< from one row to the next
};

/// Reads the header. `truncated` where the file ends before the last row does; `unsupported` for
/// what Pillow shall judge: numbers as text (P1 to P3), a maximum other than 255, and headers that
/// only Pillow would take.
[[nodiscard]] Status read_pnm_header(Bytes file, PnmHeader& header) noexcept;

/// Decodes one file after another. Not thread-safe: one per thread.
class PnmDecoder {
 public:
  /// Reads the header of a file, whose bytes must stay until the last call of `decode`.
  [[nodiscard]] Status open(Bytes file) noexcept;

  [[nodiscard]] std::size_t width() const noexcept { return header_.width; }
  [[nodiscard]] std::size_t height() const noexcept { return header_.height; }

  /// Writes a region of the opened file to `out`, which has its size: pixels as Pillow's
  /// convert("L"), ("RGB") or ("RGBA"). `bad_shape` where the region leaves the picture.
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept;

 private:
  PnmHeader header_;
  Bytes file_;
};

}  // namespace fastio
