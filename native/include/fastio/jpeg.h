/// JPEG into pixels by libjpeg-turbo.
#pragma once

#include <memory>

#include "fastio/bytes.h"
#include "fastio/pixels.h"
#include "fastio/scratch.h"
#include "fastio/status.h"

namespace fastio {

/// Decodes one file after another. Not thread-safe: one per thread.
class JpegDecoder {
 public:
  JpegDecoder() noexcept;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder();

  /// Writes the picture to `out`: accurate integer DCT, smooth upsampling, as Pillow does.
  ///
  /// Damage that libjpeg would patch over (a bad code, a missing marker) is `corrupt`, data
  /// that end too early are `truncated`; extraneous bytes between segments pass. CMYK,
  /// 12 bits, progressive files that lack a scan and what libjpeg has not been built for
  /// are `unsupported`. When the answer is not `ok`, `out` is unspecified; nothing beyond
  /// it is ever written.
  [[nodiscard]] Status decode(Bytes file, const Picture& out) noexcept;

 private:
  class Handle;  // everything of libjpeg

  std::unique_ptr<Handle> handle_;  // made with the first file
  Scratch row_;                     // one RGB row on its way to grey
};

}  // namespace fastio
