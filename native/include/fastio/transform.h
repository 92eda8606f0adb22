/// Batches of pictures cropped, resampled and mirrored on their way into the rows of an array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fastio/bytes.h"
#include "fastio/job.h"
#include "fastio/pixels.h"
#include "fastio/plan.h"
#include "fastio/transformer.h"

namespace fastio {

/// Where a batch goes. `first` is the first row, planar or not; rows follow without gaps.
struct TransformedRows {
  Picture first;
  const std::uint32_t* checksums;  ///< nullptr: not checked, but the CRCs inside PNGs are
  std::int32_t* status;
};

/// A user's function, called with each finished picture: height x width x channels bytes, which
/// it changes in place, whatever the layout of the batch, and the picture's own `count` numbers.
/// Anything but 0 makes the picture `failed`. Called from several threads at once; no exception
/// may leave it.
using PictureCall = std::int32_t (*)(std::uint8_t* pixels, std::int64_t height, std::int64_t width,
                                     std::int64_t channels, const double* numbers,
                                     std::int64_t count);

struct PictureFunction {
  PictureCall call = nullptr;       ///< nullptr: none
  const double* numbers = nullptr;  ///< `count` for each row of the batch
  std::size_t count = 0;
};

/// A batch: `spans[i]` goes into row i by `plans[i]`, which plan_fault has passed. Where the
/// restart intervals of `spans[i]` lie, `intervals[i]` may say (see Intervals); nullptr: unknown.
struct TransformBatch {
  std::unique_ptr<Bytes[]> spans;
  std::unique_ptr<Bytes[]> intervals;
  std::unique_ptr<Plan[]> plans;
  TransformOptions options;
  TransformedRows rows;
  PictureFunction function;
};

/// A task that decodes and transforms pictures. Of a JPEG only what the window needs is
/// decoded, see JpegDecoder::decode_part, shrunk where the options allow it (shrink_of);
/// `bad_shape` where a box leaves its picture.
[[nodiscard]] std::unique_ptr<Task> transform_task(TransformBatch batch) noexcept;

/// Into how many bands a large picture is cut, so that all threads have work: 1 where the batch
/// has as many pictures as there are threads, or nobody knows where decoding may start.
[[nodiscard]] std::size_t bands_for(const TransformBatch& batch, std::size_t count,
                                    std::size_t threads) noexcept;
inline constexpr std::size_t most_bands = 16;

/// The same as transform_task, for a job of `count * bands` items: the rows of a large JPEG with
/// `intervals` are decoded by as many threads (2 to most_bands), to the same pixels.
[[nodiscard]] std::unique_ptr<Task> banded_transform_task(TransformBatch batch, std::size_t count,
                                                          std::size_t bands) noexcept;

/// The same for raw pixels, `height` x `width` x channels bytes a span. The channels are those
/// of the rows; with `grey` 1 or 3, as the span's size says. Any other size is `bad_shape`.
[[nodiscard]] std::unique_ptr<Task> transform_raw_task(TransformBatch batch, std::size_t height,
                                                       std::size_t width) noexcept;

}  // namespace fastio
