/// PNG into pixels: all colour types and depths, interlaced or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "png/chunks.h"
#include "transform/plan.h"

struct libdeflate_decompressor;

namespace fastio {

/// Decodes one file after another; keeps its memory. Not thread-safe: one per thread.
class PngDecoder {
 public:
  PngDecoder() noexcept;
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder();

  /// Writes the picture to `out`, pixels as Pillow's convert("L"), ("RGB") or ("RGBA").
  ///
  /// The zlib stream's Adler-32 is always verified, the chunks' CRC-32 as
  /// `read_png_chunks` says.
  /// Memory is asked for only after the header's size was found to be that of `out`. When
  /// the answer is not `ok`, `out` is unspecified; nothing beyond it is ever written.
  [[nodiscard]] Status decode(Bytes file, const Picture& out, bool verify_data) noexcept;

  /// Shows the numbers of a region as stored, in memory of the decoder's own, valid until the next
  /// call: palette indices, greys of 16 bits whole. Greys of 2 and 4 bits are stretched to 0..255,
  /// as in Pillow's arrays; of 1 bit, they are 0 and 1.
  ///
  /// Everything is inflated, for that the Adler-32 must be compared, but no row below the region is
  /// looked at. `bad_shape` where the region leaves the picture, `truncated` where the file is too
  /// small for what its header announces (no memory is asked for then).
  [[nodiscard]] Status decode_numbers(Bytes file, const Region& region, bool verify_data,
                                      NumberView& out) noexcept;

 private:
  struct FreeInflater {
    void operator()(libdeflate_decompressor* inflater) const noexcept;
  };

  [[nodiscard]] Status inflate(std::size_t size, std::uint8_t*& filtered) noexcept;
  [[nodiscard]] Status decode_plain(std::uint8_t* filtered, const Picture& out) noexcept;
  [[nodiscard]] Status decode_interlaced(std::uint8_t* filtered, const Picture& out) noexcept;
  [[nodiscard]] Status plain_numbers(std::uint8_t* filtered, const Region& region,
                                     NumberView& out) noexcept;
  [[nodiscard]] Status interlaced_numbers(std::uint8_t* filtered, const Region& region,
                                          NumberView& out) noexcept;

  std::unique_ptr<libdeflate_decompressor, FreeInflater> inflater_;
  PngChunks chunks_;
  Scratch joined_;    // the zlib stream when it comes in several pieces
  Scratch filtered_;  // what inflate gives
  Scratch rows_;      // a row of zeros, a row of samples, a row of pixels
  Scratch numbers_;   // numbers whose bytes in the file are others
};

// Unfiltered PNG rows into a picture's channels, as Pillow converts them.

/// Converts `width` pixels of one unfiltered row. `samples` is working memory of 4 * width
/// bytes. False where a pixel names a palette entry that does not exist.
[[nodiscard]] bool convert_png_row(const PngChunks& png, const std::uint8_t* row, std::size_t width,
                                   int channels, std::uint8_t* samples, std::uint8_t* out) noexcept;

/// Writes the numbers of `width` pixels from the `first` on, as PngDecoder::decode_numbers has
/// them: a byte each, or two of the machine's order where the depth is 16.
void expand_png_numbers(const PngHeader& header, const std::uint8_t* row, std::size_t first,
                        std::size_t width, std::uint8_t* out) noexcept;

}  // namespace fastio
