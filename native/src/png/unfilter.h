/// The row filters of PNG undone, scalar and SIMD.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/simd.h"

namespace fastio {

/// Filtered rows as they come out of inflate: `rows` times a filter byte and `row_bytes`
/// bytes. `pixel_bytes` is the distance to the left neighbour (1, 2, 3, 4, 6 or 8).
struct FilteredRows {
  const std::uint8_t* data;
  std::size_t rows;
  std::size_t row_bytes;
  std::size_t pixel_bytes;
};

/// Writes the unfiltered rows to `out` without gaps; false for an unknown filter byte.
///
/// `out` may be `in.data` itself (in place), otherwise they must not overlap. Never writes
/// beyond out + rows * row_bytes, but may read up to 3 bytes beyond the filtered rows.
/// `zeros` are row_bytes + 3 zero bytes: the row above the first. Thread-safe.
[[nodiscard]] bool unfilter(const FilteredRows& in, const std::uint8_t* zeros, std::uint8_t* out,
                            SimdLevel level) noexcept;

// The row filters of one pixel size, for one instruction set (inside the core only).

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
