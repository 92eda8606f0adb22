/// What kind of picture some bytes are, and how large, from headers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fastio/bytes.h"
#include "fastio/job.h"
#include "fastio/status.h"

namespace fastio {

enum class ImageKind : std::int32_t {
  unknown = 0,
  jpeg = 1,
  png = 2,
  gif = 3,
  bmp = 4,
  webp = 5,
  tiff = 6,
  pnm = 7,
};

/// Bytes that are enough to tell every kind.
inline constexpr std::size_t signature_bytes = 12;

[[nodiscard]] ImageKind image_kind(Bytes file) noexcept;

/// Height, width and channels as stored: grey 1, grey with alpha 2, RGB and palettes 3,
/// RGBA and CMYK 4. The sizes are positive when `status` is ok, and 0 otherwise. They are those
/// that Pillow decodes to: a TIFF that lies on its side is turned, EXIF orientation of other
/// kinds is not looked at.
struct ImageInfo {
  Status status;
  std::int32_t height;
  std::int32_t width;
  std::int32_t channels;
  ImageKind kind;
};

[[nodiscard]] ImageInfo probe_image(Bytes file) noexcept;

/// What the frame header of a JPEG says.
struct JpegFrame {
  bool is_progressive;
  std::int32_t components;
};

/// False for what is not a JPEG and for headers without a frame.
[[nodiscard]] bool read_jpeg_frame(Bytes file, JpegFrame& frame) noexcept;

/// A task that writes the five numbers of `spans[i]` to `out[5 * i]`... Owns `spans`.
///
/// With `verify` the status is `bad_checksum` where a chunk of a PNG differs from its own CRC, and
/// `truncated`, beside the size that the header announces, where a file seems to break off: see
/// `may_break_off`, and of a PNG where its chunks do not reach IEND.
[[nodiscard]] std::unique_ptr<Task> probe_task(std::unique_ptr<Bytes[]> spans, bool verify,
                                               std::int32_t* out) noexcept;

}  // namespace fastio
