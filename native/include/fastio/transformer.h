/// One picture through its plan, after its pixels are there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fastio/pixels.h"
#include "fastio/plan.h"
#include "fastio/resize.h"
#include "fastio/scratch.h"

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

 private:
  /// The window's pixels, mirrored where the plan says so, into `out`.
  [[nodiscard]] bool window(const PixelView& in, int channels, const PixelTarget& out) noexcept;
  [[nodiscard]] bool premultiplied(const PixelView& in, const PixelTarget& out) noexcept;
  void place(const PixelView& in, int in_channels, const Picture& out) const noexcept;

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

}  // namespace fastio
