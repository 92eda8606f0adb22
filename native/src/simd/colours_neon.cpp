// Colours in NEON.
#if defined(__aarch64__)

#include "simd/colours_highway.h"

namespace fastio {

const ColourLoops neon_colours = loops;

}  // namespace fastio

#endif
