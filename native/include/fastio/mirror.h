/// Rows of pixels, left and right exchanged.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/resize.h"
#include "fastio/simd.h"

namespace fastio {

/// Copies `rows` rows of `pixels` pixels of 1, 3 or 4 bytes, each last one first. Nothing outside
/// the rows of both is touched; they must not overlap. Thread-safe.
using MirrorRows = void (*)(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                            std::size_t rows) noexcept;

/// The routine for a number of channels and an instruction set.
[[nodiscard]] MirrorRows mirror_rows(int channels, SimdLevel level) noexcept;

}  // namespace fastio
