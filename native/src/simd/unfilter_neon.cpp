// PNG's row filters in NEON.
#if defined(__aarch64__)

#include "simd/unfilter_highway.h"

namespace fastio {

const RowFilters neon_filters1{none_row, sub_bytes<1>, up_row, average_bytes<1>, paeth_bytes<1>};
const RowFilters neon_filters2{none_row, sub_bytes<2>, up_row, average_bytes<2>, paeth_bytes<2>};
const RowFilters neon_filters3{none_row, sub_pixels<3>, up_row, average_pixels<3>, paeth_pixels<3>};
const RowFilters neon_filters4{none_row, sub_pixels<4>, up_row, average_pixels<4>, paeth_pixels<4>};

}  // namespace fastio

#endif
