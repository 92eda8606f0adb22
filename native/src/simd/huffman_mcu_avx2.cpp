// Two MCUs at once with BMI1 and BMI2, which all that has AVX2 has: shifts by any register.
#if defined(__x86_64__)

#include "jpeg/huffman_mcu.h"

namespace fastio {

bool avx2_decode_two_mcus(std::span<const HuffmanBlock> mcu, HuffmanLane& lane,
                          Coefficients* const* blocks, std::int16_t* discarded, HuffmanLane& other,
                          std::int16_t* ahead) noexcept {
  return decode_both_mcus(mcu, lane, blocks, discarded, other, ahead);
}

}  // namespace fastio

#endif
