/// Rows of pixels, left and right exchanged.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/simd.h"

namespace fastio {

/// Copies `pixels` pixels of 1, 3 or 4 bytes, last one first. Nothing outside both rows is
/// touched; they must not overlap. Thread-safe.
using MirrorRow = void (*)(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept;

/// The routine for a number of channels and an instruction set.
[[nodiscard]] MirrorRow mirror_row(int channels, SimdLevel level) noexcept;

}  // namespace fastio
