#include "png/unfilter.h"

#include <array>
#include <cstdlib>
#include <cstring>

namespace fastio {
namespace {

std::uint8_t paeth(int left, int up, int corner) noexcept {
  const int to_left = std::abs(up - corner);
  const int to_up = std::abs(left - corner);
  const int to_corner = std::abs(left + up - 2 * corner);
  if (to_left <= to_up && to_left <= to_corner) return static_cast<std::uint8_t>(left);
  return static_cast<std::uint8_t>(to_up <= to_corner ? up : corner);
}

void none_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
              std::size_t n) noexcept {
  std::memmove(out, in, n);
}

void up_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
            std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(in[i] + above[i]);
}

template <std::size_t pixel_bytes>
void sub_row(const std::uint8_t* in, const std::uint8_t*, std::uint8_t* out,
             std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<std::uint8_t>(in[i] + (i < pixel_bytes ? 0 : out[i - pixel_bytes]));
  }
}

template <std::size_t pixel_bytes>
void average_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
                 std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const int left = i < pixel_bytes ? 0 : out[i - pixel_bytes];
    out[i] = static_cast<std::uint8_t>(in[i] + ((left + above[i]) >> 1));
  }
}

template <std::size_t pixel_bytes>
void paeth_row(const std::uint8_t* in, const std::uint8_t* above, std::uint8_t* out,
               std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const int left = i < pixel_bytes ? 0 : out[i - pixel_bytes];
    const int corner = i < pixel_bytes ? 0 : above[i - pixel_bytes];
    out[i] = static_cast<std::uint8_t>(in[i] + paeth(left, above[i], corner));
  }
}

template <std::size_t pixel_bytes>
constexpr RowFilters scalar_filters{none_row, sub_row<pixel_bytes>, up_row,
                                    average_row<pixel_bytes>, paeth_row<pixel_bytes>};

/// The filters for one pixel size; nullptr for a size that PNG does not have.
const RowFilters* filters_for(std::size_t pixel_bytes, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41 && pixel_bytes == 1) return &sse41_filters1;
  if (level >= SimdLevel::sse41 && pixel_bytes == 2) return &sse41_filters2;
  if (level >= SimdLevel::sse41 && pixel_bytes == 3) return &sse41_filters3;
  if (level >= SimdLevel::sse41 && pixel_bytes == 4) return &sse41_filters4;
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon && pixel_bytes == 1) return &neon_filters1;
  if (level >= SimdLevel::neon && pixel_bytes == 2) return &neon_filters2;
  if (level >= SimdLevel::neon && pixel_bytes == 3) return &neon_filters3;
  if (level >= SimdLevel::neon && pixel_bytes == 4) return &neon_filters4;
#else
  (void)level;
#endif
  switch (pixel_bytes) {
    case 1: return &scalar_filters<1>;
    case 2: return &scalar_filters<2>;
    case 3: return &scalar_filters<3>;
    case 4: return &scalar_filters<4>;
    case 6: return &scalar_filters<6>;
    case 8: return &scalar_filters<8>;
    default: return nullptr;
  }
}

}  // namespace

bool unfilter(const FilteredRows& in, const std::uint8_t* zeros, std::uint8_t* out,
              SimdLevel level) noexcept {
  const RowFilters* filters = filters_for(in.pixel_bytes, level);
  if (filters == nullptr) return false;
  const std::array<RowFilter, 5> by_number{filters->none, filters->sub, filters->up,
                                           filters->average, filters->paeth};
  const std::uint8_t* row = in.data;
  const std::uint8_t* above = zeros;
  for (std::size_t y = 0; y < in.rows; ++y) {
    const std::uint8_t filter = row[0];
    if (filter >= by_number.size()) return false;
    by_number[filter](row + 1, above, out, in.row_bytes);
    row += in.row_bytes + 1;
    above = out;
    out += in.row_bytes;
  }
  return true;
}

}  // namespace fastio
