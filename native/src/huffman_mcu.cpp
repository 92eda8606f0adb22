#include "huffman_mcu.h"

namespace fastio {
namespace {

bool scalar_decode_two_mcus(std::span<const HuffmanBlock> mcu, HuffmanLane& lane,
                            Coefficients* const* blocks, std::int16_t* discarded,
                            HuffmanLane& other, std::int16_t* ahead) noexcept {
  return decode_both_mcus(mcu, lane, blocks, discarded, other, ahead);
}

}  // namespace

DecodeTwoMcus decode_two_mcus(SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx2) return avx2_decode_two_mcus;
#endif
  (void)level;
  return scalar_decode_two_mcus;
}

}  // namespace fastio
