#include "ac_refinement.h"

namespace fastio {
namespace {

bool scalar_refine_blocks(ScanReader& reader, const AcBand& band, Coefficients* blocks,
                          CoefficientMask* masks, std::size_t count, std::uint32_t& ended_blocks) {
  return refine_each_block<nth_bit_by_counting>(reader, band, blocks, masks, count, ended_blocks);
}

}  // namespace

RefineBlocks refine_blocks(SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx512) return avx512_refine_blocks;
  if (level >= SimdLevel::avx2) return avx2_refine_blocks;
#else
  (void)level;
#endif
  return scalar_refine_blocks;
}

bool take_refinement_symbol(ScanReader& reader, const HuffmanTable& table,
                            HuffmanTable::Entry entry, RefinementSymbol& found) noexcept {
  std::uint32_t symbol = 0;
  if (!reader.take_symbol(table, entry, symbol)) return false;
  const std::uint32_t size = symbol & 15;
  const std::uint32_t run = symbol >> 4;
  found = {run, 0, 0};
  if (size > 1) return false;
  if (size == 1) {
    found.sign = reader.take_value(1);
  } else if (run != HuffmanTable::zero_run) {
    found.ended_blocks =
        (1U << run) + static_cast<std::uint32_t>(reader.take_bits(static_cast<int>(run)));
  }
  reader.refill();
  return true;
}

}  // namespace fastio
