/// What of a picture is to be decoded.
#pragma once

#include <cstddef>

#include "jpeg/jump_table.h"
#include "transform/plan.h"
#include "transform/resize.h"

namespace fastio {

/// A part of a picture to decode. `box` must lie within the picture; `region`, in pixels of the
/// picture shrunk by `shrink`, within what the box touches there.
struct PicturePart {
  Region box;
  Region region;
  int channels;
  std::size_t shrink = 1;  ///< JPEGs only: 2, 4 or 8, smaller inverse DCTs; sides are rounded up
  Intervals intervals{};   ///< JPEGs only: where they are known; need not be true
  /// JPEGs only: memory of the caller's for the region's rows, `stride` apart; nullptr: the
  /// decoder's own. Not used where a row with what is decoded beside it is longer than `stride`.
  PixelTarget target{};
  std::size_t max_pixels = any_pixels;  ///< of the whole picture; `too_large` beyond
};

}  // namespace fastio
