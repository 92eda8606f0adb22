/// Rows of pixels taken apart into one plane for each channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/resize.h"
#include "fastio/simd.h"

namespace fastio {

/// Where the planes lie: the first of them, the next `plane` bytes further, each in rows of
/// `stride` bytes.
struct PlanesTarget {
  std::uint8_t* data;
  std::size_t stride;
  std::size_t plane;
};

/// Writes channel c of `rows` rows of `pixels` pixels into plane c, for 1, 3 or 4 channels. Nothing
/// outside the rows of both is touched; they must not overlap. Thread-safe.
using SplitRows = void (*)(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                           std::size_t rows) noexcept;

/// The routine for a number of channels and an instruction set.
[[nodiscard]] SplitRows split_rows(int channels, SimdLevel level) noexcept;

}  // namespace fastio
