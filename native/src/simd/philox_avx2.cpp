// Philox4x32-10 in AVX2: eight counters at once, a lane each.
#if defined(__x86_64__)

#include <immintrin.h>

#include "../philox_steps.h"

namespace fastio {
namespace {

struct Product {
  __m256i high;
  __m256i low;
};

Product multiplied(__m256i x, __m256i factor) noexcept {
  const __m256i even = _mm256_mul_epu32(x, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
}

void store(std::uint32_t* to, __m256i low, __m256i high, int half) noexcept {
  const __m256i both = half == 0 ? _mm256_permute2x128_si256(low, high, 0x20)
                                 : _mm256_permute2x128_si256(low, high, 0x31);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), both);
}

}  // namespace

void avx2_philox_steps(const PhiloxSteps& from, std::size_t eights, std::uint32_t* out) noexcept {
  const __m256i first_factor = _mm256_set1_epi64x(0xD2511F53);
  const __m256i second_factor = _mm256_set1_epi64x(0xCD9E8D57);
  __m256i steps = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(from.first)),
                                   _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  for (std::size_t i = 0; i < eights; ++i, out += 32) {
    __m256i a = steps;
    __m256i b = _mm256_setzero_si256();
    __m256i c = _mm256_set1_epi32(static_cast<int>(from.part));
    __m256i d = _mm256_set1_epi32(static_cast<int>(from.epoch));
    std::uint32_t key[2] = {from.key[0], from.key[1]};
    for (int round = 0; round < 10; ++round) {
      const Product first = multiplied(a, first_factor);
      const Product second = multiplied(c, second_factor);
      a = _mm256_xor_si256(_mm256_xor_si256(second.high, b),
                           _mm256_set1_epi32(static_cast<int>(key[0])));
      b = second.low;
      c = _mm256_xor_si256(_mm256_xor_si256(first.high, d),
                           _mm256_set1_epi32(static_cast<int>(key[1])));
      d = first.low;
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    // From a word a vector to the four words of a counter side by side.
    const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
    const __m256i first = _mm256_unpacklo_epi64(ab_low, cd_low);    // counters 0 and 4
    const __m256i second = _mm256_unpackhi_epi64(ab_low, cd_low);   // 1 and 5
    const __m256i third = _mm256_unpacklo_epi64(ab_high, cd_high);  // 2 and 6
    const __m256i fourth = _mm256_unpackhi_epi64(ab_high, cd_high);
    store(out, first, second, 0);
    store(out + 8, third, fourth, 0);
    store(out + 16, first, second, 1);
    store(out + 24, third, fourth, 1);
    steps = _mm256_add_epi32(steps, _mm256_set1_epi32(8));
  }
}

}  // namespace fastio

#endif
