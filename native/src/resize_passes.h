/// The two passes of resampling, for one instruction set (inside the core only).
#pragma once

#include <cstddef>

#include "fastio/resize.h"

namespace fastio {

/// `rows` rows, each from input positions taps.low() on, into taps.count() pixels.
using HorizontalPass = void (*)(const Taps& taps, int channels, const PixelView& in,
                                std::size_t rows, const PixelTarget& out) noexcept;

/// Rows of `bytes` bytes, from input row taps.low() on, into taps.count() rows.
using VerticalPass = void (*)(const Taps& taps, std::size_t bytes, const PixelView& in,
                              const PixelTarget& out) noexcept;

struct ResizePasses {
  HorizontalPass horizontal;
  VerticalPass vertical;
};

extern const ResizePasses scalar_passes;
// Those of vectors are for 3 and 4 channels, 1 channel as scalar_passes, and need Taps::pack.
#if defined(__x86_64__)
extern const ResizePasses avx2_passes;
extern const ResizePasses avx512_passes;
#elif defined(__aarch64__)
extern const ResizePasses neon_passes;
#endif

}  // namespace fastio
