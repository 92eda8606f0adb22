/// JPEGs written by libjpeg-turbo: from the coefficients of another one, or from pixels.
#pragma once

#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"

namespace fastio {

/// How many pixels share their colour, horizontally x vertically: 1x1, 2x1, 2x2.
enum class Subsampling : std::int32_t { s444 = 0, s422 = 1, s420 = 2 };

/// How pixels become a JPEG.
struct JpegStyle {
  int quality;  ///< 1 to 100
  Subsampling subsampling;
  std::uint32_t restart_interval;  ///< MCUs between restart markers; 0: none
};

/// Writes one file after another. Not thread-safe: one per thread.
///
/// Baseline, one scan, Huffman tables made for the picture. `no_memory` from any function.
class JpegWriter {
 public:
  JpegWriter() noexcept;
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;
  ~JpegWriter();

  /// Adds to `out` a JPEG of the same coefficients, with restart markers every
  /// `restart_interval` MCUs: the very same pixels. Comments and application segments (EXIF,
  /// ICC profile, Adobe, JFIF, ...) are copied in their order.
  ///
  /// Damage is reported as by JpegDecoder. `unsupported`, with `out` unspecified, for what that
  /// does not decode, for bytes behind the picture and for what one scan cannot hold.
  [[nodiscard]] Status rewrite(Bytes file, std::uint32_t restart_interval, Blob& out) noexcept;

  /// Adds to `out` a JPEG of these pixels, of 1 or 3 channels.
  ///
  /// `original` is the file that they come from. Of a JPEG its comments and application segments
  /// are copied but JFIF and Adobe, which are written anew, and those that name places in the
  /// file. `unsupported` when a side is too long for JPEG.
  [[nodiscard]] Status encode(const Picture& pixels, const JpegStyle& style, Bytes original,
                              Blob& out) noexcept;

 private:
  class Handle;  // everything of libjpeg

  std::unique_ptr<Handle> handle_;  // made with the first file
};

}  // namespace fastio
