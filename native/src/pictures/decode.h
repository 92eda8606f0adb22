/// A batch of encoded pictures into one array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "pictures/part.h"
#include "pictures/pixels.h"
#include "transform/resize.h"

namespace fastio {

/// Decodes one picture with the worker's decoders, by what its first bytes say it is.
/// `verify_data`: see PngDecoder::decode; `intervals`: see JpegDecoder::decode.
[[nodiscard]] Status decode_picture(Worker& worker, Bytes file, const Picture& out,
                                    bool verify_data, const Intervals& intervals = {}) noexcept;

/// Decodes a region of one picture into memory of the worker's: the very pixels that
/// decode_picture gives. `pixels` is its first pixel, valid until the next call;
/// Resizer::slack bytes behind the region are readable.
///
/// `bad_shape` where the box leaves the picture. Of a JPEG only what is needed is decoded, see
/// JpegDecoder::decode_part.
[[nodiscard]] Status decode_part(Worker& worker, Bytes file, const PicturePart& part,
                                 bool verify_data, PixelView& pixels) noexcept;

/// Where a batch of pictures goes: picture i lies at `first.data` + i * height * row bytes.
struct Pictures {
  Picture first;
  const std::uint32_t* checksums;  ///< nullptr: not checked, but the CRCs inside PNGs are
  std::int32_t* status;
};

/// A task that decodes `spans[i]` into picture i, by `intervals[i]` where there are such (nullptr:
/// none). Owns both, nothing else.
[[nodiscard]] std::unique_ptr<Task> decode_task(std::unique_ptr<Bytes[]> spans,
                                                std::unique_ptr<Bytes[]> intervals,
                                                const Pictures& pictures) noexcept;

}  // namespace fastio
