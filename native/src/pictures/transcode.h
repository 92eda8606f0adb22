/// Encoded pictures written anew on their way into a store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "jpeg/writer.h"

namespace fastio {

/// Which side of a picture is bounded; `exact`: both are what they should be.
enum class Bound : std::int32_t { none = 0, short_side = 1, long_side = 2, exact = 3 };

/// What is wanted of the pictures.
struct TranscodeOptions {
  Bound bound;         ///< a larger picture is resized (bilinear, antialiased) and becomes a JPEG
  std::int32_t side;   ///< pixels, at least 1; the height with `exact`; not with `none`
  std::int32_t width;  ///< pixels, at least 1; with `exact` only
  JpegStyle style;     ///< of pictures that are resized
  std::uint32_t restart_interval;  ///< of JPEGs that keep their pixels; 0: these keep their bytes
};

/// What became of a picture. The numbers are part of the Python interface.
enum class Outcome : std::int32_t {
  resized = 0,    ///< a JPEG of other pixels
  rewritten = 1,  ///< a JPEG of the same coefficients, with restart markers
  fitting = 2,    ///< kept as it is, and as it should be
  other = 3,      ///< kept: of a kind that is not written anew
  unusual = 4,    ///< kept: CMYK, 12 bits, bytes behind the picture, no end marker, ...
  rich = 5,       ///< kept: a PNG with what a JPEG cannot hold (see transcode_task)
};

/// One picture after it was written anew, or as it was.
struct Transcoded {
  Status status = Status::ok;  ///< damage; then the rest is unspecified
  Outcome outcome = Outcome::fitting;
  std::int32_t shape[3] = {};  ///< height, width, channels as stored
  Blob bytes;
  Blob intervals;  ///< see find_intervals; where the JPEG has been written here
};

/// A batch of them. Read when `done` (acquire) is their number: threads may keep it longer.
struct TranscodedBatch {
  explicit TranscodedBatch(std::size_t count) : pictures(count) {}

  std::vector<Transcoded> pictures;
  std::atomic<std::size_t> done{0};
};

/// A task that writes `spans[i]` anew into `out->pictures[i]`. Owns `spans`; shares `out`.
///
/// JPEGs and PNGs are made smaller by `bound`; JPEGs that are small enough get restart markers,
/// if there is an interval. With `exact` only JPEGs are resized, to that very size; others of
/// another size are `other`. PNGs with transparency, 16 bits, a colour profile, EXIF data or an
/// animation are `rich`.
[[nodiscard]] std::unique_ptr<Task> transcode_task(std::unique_ptr<Bytes[]> spans,
                                                   const TranscodeOptions& options,
                                                   std::shared_ptr<TranscodedBatch> out) noexcept;

}  // namespace fastio
