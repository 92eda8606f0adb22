/// PNG into pixels: all colour types and depths, interlaced or not.
#pragma once

#include <memory>

#include "fastio/bytes.h"
#include "fastio/pixels.h"
#include "fastio/png_chunks.h"
#include "fastio/scratch.h"
#include "fastio/status.h"

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

 private:
  struct FreeInflater {
    void operator()(libdeflate_decompressor* inflater) const noexcept;
  };

  [[nodiscard]] Status inflate(std::size_t size, std::uint8_t*& filtered) noexcept;
  [[nodiscard]] Status decode_plain(std::uint8_t* filtered, const Picture& out) noexcept;
  [[nodiscard]] Status decode_interlaced(std::uint8_t* filtered, const Picture& out) noexcept;

  std::unique_ptr<libdeflate_decompressor, FreeInflater> inflater_;
  PngChunks chunks_;
  Scratch joined_;    // the zlib stream when it comes in several pieces
  Scratch filtered_;  // what inflate gives
  Scratch rows_;      // a row of zeros, a row of samples, a row of pixels
};

}  // namespace fastio
