/// JPEG into pixels by libjpeg-turbo.
#pragma once

#include <memory>
#include <span>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/part.h"
#include "pictures/pixels.h"
#include "transform/resize.h"

namespace fastio {

/// Who turns the bits of a file into coefficients. Both give the same.
enum class Entropy { libjpeg_turbo, fastio };

/// `fastio` unless the environment says FASTIO_ENTROPY=turbo, the build is one whose insides
/// are not known, or three small pictures, decoded by both when first asked, differ.
[[nodiscard]] Entropy entropy_in_use() noexcept;

/// The MCU of a scan whose codes make no sense, or the first one that is not there.
struct DamagePlace {
  std::size_t byte = 0;  ///< of the file, where it begins
  std::size_t row = 0;   ///< from 0; `rows` for the end of the scan
  std::size_t rows = 0;
};

/// Where MCUs of a file begin.
struct NotedPoints {
  Status status = Status::ok;
  Blob table;  ///< see jump_table.h
};

/// Decodes one file after another. Not thread-safe: one per thread.
class JpegDecoder {
 public:
  explicit JpegDecoder(Entropy entropy = entropy_in_use()) noexcept;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder();

  /// Writes the picture to `out`: accurate integer DCT, smooth upsampling, inks to RGB, as
  /// Pillow does.
  ///
  /// Damage that libjpeg would patch over (a bad code, a missing marker) is `corrupt`, data
  /// that end too early are `truncated`; extraneous bytes between segments pass. 12 bits,
  /// progressive files that lack a scan, files of one scan that lack nothing but the end marker
  /// (see lacks_only_end) and what libjpeg has not been built for are `unsupported`. When the
  /// answer is not `ok`, `out` is unspecified; nothing beyond it is ever written. `intervals` as of
  /// PicturePart: with a jump table it takes less time.
  [[nodiscard]] Status decode(Bytes file, const Picture& out,
                              const Intervals& intervals = {}) noexcept;

  /// Decodes a region into memory of the decoder's own: the very pixels that `decode` gives, or
  /// those that libjpeg-turbo gives for the whole picture shrunk. `view` is its first pixel and
  /// is valid until the next call.
  ///
  /// As `decode`, but for damage behind the last row needed and in restart intervals without a
  /// pixel needed, which are not looked at (the checksum of the file sees it); `bad_shape` where
  /// the box leaves the picture.
  [[nodiscard]] Status decode_part(Bytes file, const PicturePart& part, PixelView& view) noexcept;

  /// Reads all codes of `files`, several files at once, and adds to the table of each of `noted` a
  /// point about every `spacing` MCUs, which decode_part takes for `intervals`.
  ///
  /// Damage as from `decode`. `unsupported`, without a table, for files that need none (with
  /// restart markers) or cannot have one (progressive, arithmetic, several scans, other kinds):
  /// damage in these is not looked for.
  void note_points(std::span<const Bytes> files, std::size_t spacing, NotedPoints* noted) noexcept;

  /// Whether a file whose decoding is `truncated` has all codes of its one scan, so that pixels
  /// do not depend on what stands in place of the end marker. Pillow decodes such a file unless
  /// its libjpeg looks further ahead than the file goes.
  ///
  /// The last code must end as encoders let it end, with ones up to the next byte, and before the
  /// run of equal bytes that ends the file: where data are missing, the bytes behind them may be
  /// codes too, zeros above all. Other bytes in place of data may pass, as they do in Pillow.
  [[nodiscard]] bool lacks_only_end(Bytes file) noexcept;

  /// Where the codes of a damaged file end to make sense, for messages. False, without a place,
  /// where the damage is before its one baseline scan, or there is none, or no damage.
  [[nodiscard]] bool find_damage(Bytes file, DamagePlace& place) noexcept;

 private:
  class Handle;  // everything of libjpeg

  [[nodiscard]] Status judged(Status status, Bytes file) noexcept;

  const Entropy entropy_;
  std::unique_ptr<Handle> handle_;  // made with the first file
  Scratch row_;                     // one row before it is converted
  Scratch part_;                    // what decode_part gives
};

}  // namespace fastio
