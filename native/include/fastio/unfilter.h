/// The row filters of PNG undone, scalar and SIMD.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastio {

/// Instruction sets that the filters are written for. All give the same bytes.
enum class SimdLevel { none, sse41 };

/// The best level of this machine, or `none` where the environment says FASTIO_SIMD=none.
/// Asked once, kept for the life of the process.
[[nodiscard]] SimdLevel simd_level() noexcept;

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
