/// Whether the file of a picture breaks off, by a look at its end.
#pragma once

#include "fastio/bytes.h"
#include "fastio/probe.h"

namespace fastio {

/// Whether a file of this kind may end before its pixels do: no end marker (JPEG), a trailer that
/// is not the last byte (GIF), or fewer bytes than the header announces (BMP, WebP, TIFF, PNM but
/// for numbers as text).
///
/// A suspicion that decoding must confirm: GIFs may have bytes behind their trailer, and all data
/// of a JPEG may be there (see JpegDecoder::lacks_only_end). False says nothing of damage before
/// the end. A PNG is read whole by `check_png_chunks`. Looks at a few bytes, and at the places of
/// all strips or tiles of a TIFF; only a JPEG with bytes behind its end marker is searched. `file`
/// begins as `image_kind` says.
[[nodiscard]] bool may_break_off(Bytes file, ImageKind kind) noexcept;

}  // namespace fastio
