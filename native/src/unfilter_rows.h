/// The row filters of one pixel size, for one instruction set (inside the core only).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastio {

/// Undoes one filter on a row of `n` bytes: `in` filtered, `above` the finished row above.
using RowFilter = void (*)(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
                           std::size_t n) noexcept;

struct RowFilters {
  RowFilter none;
  RowFilter sub;
  RowFilter up;
  RowFilter average;
  RowFilter paeth;
};

#if defined(__x86_64__)
extern const RowFilters sse41_filters1;
extern const RowFilters sse41_filters2;
extern const RowFilters sse41_filters3;
extern const RowFilters sse41_filters4;
#elif defined(__aarch64__)
extern const RowFilters neon_filters1;
extern const RowFilters neon_filters2;
extern const RowFilters neon_filters3;
extern const RowFilters neon_filters4;
#endif

}  // namespace fastio
