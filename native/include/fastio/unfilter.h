/// The row filters of PNG undone, scalar and SIMD.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/simd.h"

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

}  // namespace fastio
