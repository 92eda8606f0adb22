// Philox4x32-10 in AVX2.
#if defined(__x86_64__)

#include "simd/philox_highway.h"

namespace fastio {

std::size_t avx2_philox_steps(const PhiloxSteps& from, std::size_t words,
                              std::uint32_t* out) noexcept {
  return steps(from, words, out);
}

}  // namespace fastio

#endif
