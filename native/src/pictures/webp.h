/// WebP into pixels by libwebp, where the build has it.
#pragma once

#include <cstddef>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

namespace fastio {

/// The version of libwebp, as in "1.2.4"; nullptr in a build without it.
[[nodiscard]] const char* webp_version() noexcept;

/// Decodes one file after another: still pictures, lossy and lossless, with alpha or without. Not
/// thread-safe: one per thread.
class WebpDecoder {
 public:
  /// Reads the headers of a file, whose bytes must stay until the last call of `decode`.
  ///
  /// As Pillow, it wants the whole file to be well formed; `unsupported` for animations, and for
  /// every file in a build without libwebp.
  [[nodiscard]] Status open(Bytes file) noexcept;

  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  [[nodiscard]] std::size_t height() const noexcept { return height_; }

  /// Writes a region of the opened file to `out`, which has its size: pixels as Pillow's
  /// convert("L"), ("RGB") or ("RGBA"). `bad_shape` where the region leaves the picture.
  ///
  /// Damage behind the last row needed is not looked at (the checksum of the file sees it).
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept;

 private:
  [[nodiscard]] Status decode_into(const Region& region, const Picture& out) const noexcept;

  Bytes stream_;  // the frame's chunks
  std::size_t width_ = 0;
  std::size_t height_ = 0;
  bool has_lossy_colours_and_alpha_ = false;
  Scratch memory_;  // a region that is larger than the one wanted, or is to become grey
};

}  // namespace fastio
