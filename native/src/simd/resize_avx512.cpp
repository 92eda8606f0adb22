// Resampling in AVX-512 with VNNI.
#if defined(__x86_64__)

#include "simd/resize_highway.h"

namespace fastio {

const ResizePasses avx512_passes{horizontal, vertical};

}  // namespace fastio

#endif
