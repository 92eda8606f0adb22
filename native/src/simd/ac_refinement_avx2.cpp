// Refining scans with BMI1 and POPCNT, which all that has AVX2 has.
#if defined(__x86_64__)

#include "jpeg/ac_refinement.h"

namespace fastio {

// Not PDEP: on the first Zen it takes as long as the loop.
bool avx2_refine_blocks(ScanReader& reader, const AcBand& band, Coefficients* blocks,
                        CoefficientMask* masks, std::size_t count, std::uint32_t& ended_blocks) {
  return refine_each_block<nth_bit_by_counting>(reader, band, blocks, masks, count, ended_blocks);
}

}  // namespace fastio

#endif
