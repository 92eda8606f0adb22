// Colours in AVX-512.
#if defined(__x86_64__)

#include "simd/colours_highway.h"

namespace fastio {

const ColourLoops avx512_colours = loops;

}  // namespace fastio

#endif
