/// Reordering by instruction set (inside the core only).
#pragma once

#include "fastio/reorder.h"

namespace fastio {

#if defined(__x86_64__)
/// As `reorder_pixels`, but for the last few pixels. Returns how many are done.
std::size_t sse41_reorder(const std::uint8_t* in, const ByteOrder& order, std::uint8_t* out,
                          std::size_t channels, std::size_t pixels) noexcept;
#endif

}  // namespace fastio
