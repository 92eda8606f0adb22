// Resampling in NEON.
#if defined(__aarch64__)

#include "simd/resize_highway.h"

namespace fastio {

const ResizePasses neon_passes{horizontal, vertical};

}  // namespace fastio

#endif
