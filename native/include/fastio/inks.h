/// The four components of CMYK and YCCK JPEGs into RGB.
///
/// To the bit what Pillow gives: it takes the inks as Adobe stores them, inverted, and converts
/// them by multiplying with black.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/simd.h"

namespace fastio {

/// What the first three components are: inks, or luma and chroma of them. The fourth is black.
enum class Inks { cmyk, ycck };

/// Converts `width` pixels of 4 bytes, as they come out of the inverse DCT, to 3 (RGB) or 4
/// bytes (RGBA, opaque). `out` may be `in`, and otherwise must not overlap it.
using InksRow = void (*)(const std::uint8_t* in, std::uint8_t* out, std::size_t width);

/// The routine for these inks and `channels`, 3 or 4. All levels give the same bytes.
[[nodiscard]] InksRow inks_row(Inks inks, int channels, SimdLevel level = simd_level()) noexcept;

}  // namespace fastio
