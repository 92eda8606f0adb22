// Colours in AVX2 with FMA.
#if defined(__x86_64__)

#include "simd/colours_highway.h"

namespace fastio {

const ColourLoops avx2_colours = loops;

}  // namespace fastio

#endif
