/// What kind of picture some bytes are, how large it is, and whether the file breaks off: from
/// headers and the file's end only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "pictures/kinds.h"

namespace fastio {

/// Height, width and channels as stored: grey 1, grey with alpha 2, RGB and palettes 3,
/// RGBA and CMYK 4. The sizes are positive when `status` is ok, and 0 otherwise; `unsupported`
/// where Pillow reads the header. They are those that Pillow decodes to: a TIFF that lies on its
/// side is turned, EXIF orientation of other kinds is not looked at.
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

/// Whether a file of this kind may end before its pixels do: no end marker (JPEG), a trailer that
/// is not the last byte (GIF), or fewer bytes than the header announces (BMP, WebP, TIFF, PNM but
/// for numbers as text).
///
/// A suspicion that decoding must confirm: GIFs may have bytes behind their trailer, and all data
/// of a JPEG may be there (see JpegDecoder::lacks_only_end). False says nothing of damage before
/// the end. A PNG is read whole by `check_png_chunks`. Looks at a few bytes, and at the places of
/// all strips or tiles of a TIFF; only a JPEG with bytes behind its end marker is searched. `file`
/// is of this
/// kind.
[[nodiscard]] bool may_break_off(Bytes file, ImageKind kind) noexcept;

}  // namespace fastio
