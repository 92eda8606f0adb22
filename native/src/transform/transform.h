/// Pictures cropped, resampled and mirrored: one picture through its plan, and batches of them on
/// their way into the rows of an array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/thread_pool.h"
#include "pictures/pixels.h"
#include "transform/colours.h"
#include "transform/plan.h"
#include "transform/resize.h"
#include "transform/rows.h"

namespace fastio {

/// What all pictures of a batch have in common.
struct TransformOptions {
  Filter filter;
  std::array<std::uint8_t, 4> fill;  ///< one value a channel, around the window
  bool planar;                       ///< rows are channels x height x width
  bool grey;                         ///< luma of the result in every channel; not with 4
  bool fast;                         ///< JPEGs may be shrunk as `shrink_of` says, before resampling
  std::size_t max_pixels = any_pixels;  ///< of an encoded picture; larger ones are not decoded
  PassOrder order = PassOrder::cheaper_first;
};

/// By how much (1, 2, 4 or 8) a JPEG may be shrunk by its decoder before the plan resamples it:
/// the most that leaves both sides twice as long as what they become. 1 unless `fast`, and for
/// `nearest`, which picks pixels instead of averaging them.
[[nodiscard]] std::size_t shrink_of(const Plan& plan, const TransformOptions& options) noexcept;

/// Runs one plan after another; keeps its memory. Not thread-safe: one per thread.
///
/// `begin` says what part of the picture is needed, `finish` gets it and fills the row.
class Transformer {
 public:
  /// False when there is no memory. The plan has passed plan_fault and is not empty. `shrink`:
  /// the picture will come smaller by that, each side's pixels [0, size / shrink), rounded up;
  /// more than 1 only where the plan resamples.
  [[nodiscard]] bool begin(const Plan& plan, const TransformOptions& options,
                           std::size_t shrink) noexcept;

  /// The part of the (shrunk) picture that is needed.
  [[nodiscard]] const Region& region() const noexcept { return region_; }

  /// Transforms the region into the row `out`. `in_channels` is `out.channels`, or 1 or 3 with
  /// `grey`. Resizer::slack bytes behind the region must be readable where the plan resamples.
  /// False when there is no memory.
  [[nodiscard]] bool finish(const PixelView& in, int in_channels, const Picture& out) noexcept;

  /// The same from planes to planes, for a plan that does not resample, without `grey`.
  void finish_planes(const PlanesView& in, const Picture& out) noexcept;

 private:
  /// The same, but top and bottom are where they were.
  [[nodiscard]] bool upright(const PixelView& in, int in_channels, const Picture& out) noexcept;
  /// The window's pixels, left and right exchanged where the plan says so, into `out`.
  [[nodiscard]] bool window(const PixelView& in, int channels, const PixelTarget& out) noexcept;
  /// How many pixels of each row lie left of the window.
  [[nodiscard]] std::size_t left_of_window(const Picture& out) const noexcept;
  [[nodiscard]] bool premultiplied(const PixelView& in, const PixelTarget& out) noexcept;
  void place(const PixelView& in, int in_channels, const Picture& out,
             bool mirrored) const noexcept;

  Plan plan_{};
  TransformOptions options_{};
  Region region_{};
  Resizer resizer_;
  Scratch window_;
  Scratch premultiplied_;
};

/// A row that shows nothing of its picture.
void fill_row(const TransformOptions& options, const Picture& out) noexcept;

/// The picture's channels one after the other, to as many bytes at `planes`.
void split_channels(const Picture& picture, std::uint8_t* planes) noexcept;

/// The same from planes.
void join_channels(const std::uint8_t* planes, const Picture& picture) noexcept;

/// Pictures of one size that programs change where they lie: planes, or pixel behind pixel.
struct ColouredRows {
  Picture first;
  bool planar;
  ColourPrograms colours;
  std::int32_t* status;
};

/// A task whose item i is picture i; `unsupported` where there is no memory, `failed` where a
/// function of the user's failed.
[[nodiscard]] std::unique_ptr<Task> colour_task(ColouredRows rows) noexcept;

/// What a worker has decoded of a picture for the views of it.
struct DecodedPart {
  Region region;
  PixelView pixels;  ///< its first one
};

// Batches of pictures cropped, resampled and mirrored on their way into the rows of an array.

/// Where a batch goes. `first` is the first row, planar or not; rows follow without gaps.
struct TransformedRows {
  Picture first;
  const std::uint32_t* checksums;  ///< nullptr: not checked, but the CRCs inside PNGs are
  std::int32_t* status;
};

/// A batch: `spans[i]` goes into row i by `plans[i]`, which plan_fault has passed. Where the
/// restart intervals of `spans[i]` lie, `intervals[i]` may say (see Intervals); nullptr: unknown.
/// Rows may have heights of their own: row i is the lines [places[i], places[i + 1]) from the first
/// row on; nullptr: all have that of the first.
struct TransformBatch {
  std::unique_ptr<Bytes[]> spans;
  std::unique_ptr<Bytes[]> intervals;
  std::unique_ptr<Plan[]> plans;
  TransformOptions options;
  TransformedRows rows;
  ColourPrograms colours;
  std::unique_ptr<std::size_t[]> places = nullptr;

  /// Row i.
  [[nodiscard]] Picture row(std::size_t i) const noexcept {
    Picture row = rows.first;
    row.data += (places ? places[i] : i * row.height) * row.row_bytes();
    if (places) row.height = places[i + 1] - places[i];
    return row;
  }
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

/// How raw pixels lie in a value: height x width x channels bytes, or `planar`, channels x height x
/// width.
struct RawPixels {
  std::size_t height;
  std::size_t width;
  bool planar = false;

  friend bool operator==(const RawPixels&, const RawPixels&) = default;
};

/// The same for raw pixels. The channels are those of the rows; with `grey` 1 or 3, as the span's
/// size says. Any other size is `bad_shape`.
[[nodiscard]] std::unique_ptr<Task> transform_raw_task(TransformBatch batch,
                                                       const RawPixels& stored) noexcept;

// Views: several plans for the same pictures, which are decoded once.

/// The same for several batches of the same spans, by one decoding of each picture, for the region
/// that its views need together: `views[v]` fills its own rows, to the pixels that it would fill
/// alone. Statuses go to those of the first; checksums, intervals and limits are its. No view may
/// be `fast`.
[[nodiscard]] std::unique_ptr<Task> views_task(std::vector<TransformBatch> views) noexcept;

/// The same for raw pixels.
[[nodiscard]] std::unique_ptr<Task> raw_views_task(std::vector<TransformBatch> views,
                                                   const RawPixels& stored) noexcept;

}  // namespace fastio
