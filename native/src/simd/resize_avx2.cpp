// Resampling in AVX2.
#if defined(__x86_64__)

#include "simd/resize_highway.h"

namespace fastio {

const ResizePasses avx2_passes{horizontal, vertical};

}  // namespace fastio

#endif
