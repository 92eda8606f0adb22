// Refining scans with PDEP, which is fast on all that has AVX-512.
#if defined(__x86_64__)

#include <immintrin.h>

#include "jpeg/ac_refinement.h"

namespace fastio {
namespace {

CoefficientMask nth_bit(CoefficientMask mask, std::uint32_t n) noexcept {
  return _pdep_u64(std::uint64_t{1} << n, mask);
}

}  // namespace

bool avx512_refine_blocks(ScanReader& reader, const AcBand& band, Coefficients* blocks,
                          CoefficientMask* masks, std::size_t count, std::uint32_t& ended_blocks) {
  return refine_each_block<nth_bit>(reader, band, blocks, masks, count, ended_blocks);
}

}  // namespace fastio

#endif
