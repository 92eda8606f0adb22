/// The scans of progressive JPEG that send one more bit of coefficients.
///
/// The inner loop of progressive decoding, compiled for several instruction sets: it counts and
/// searches bits of masks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/simd.h"
#include "jpeg/huffman.h"
#include "jpeg/scan_reader.h"

namespace fastio {

/// Which coefficients of a block, in zigzag order, are not zero.
using CoefficientMask = std::uint64_t;

/// Coefficients `first` to `last` of blocks, in a scan that sends their bits from `low` up.
struct AcBand {
  const HuffmanTable* table;  ///< HuffmanUse::progressive_ac
  std::uint32_t first, last, low;
};

/// Refines `count` blocks that stand side by side. `ended_blocks`: how many have no new
/// coefficient, from the next one on. False for a code that is none and a value behind the band.
using RefineBlocks = bool (*)(ScanReader& reader, const AcBand& band, Coefficients* blocks,
                              CoefficientMask* masks, std::size_t count,
                              std::uint32_t& ended_blocks);

[[nodiscard]] RefineBlocks refine_blocks(SimdLevel level) noexcept;

#if defined(__x86_64__)
bool avx2_refine_blocks(ScanReader& reader, const AcBand& band, Coefficients* blocks,
                        CoefficientMask* masks, std::size_t count, std::uint32_t& ended_blocks);
bool avx512_refine_blocks(ScanReader& reader, const AcBand& band, Coefficients* blocks,
                          CoefficientMask* masks, std::size_t count, std::uint32_t& ended_blocks);
#endif

/// One block of a refining scan, while it is read.
///
/// A bit follows for every coefficient that is not zero yet passed by: they are collected and
/// added at the end, for what the loop waits for is each symbol's length.
class RefinedBlock {
 public:
  RefinedBlock(const AcBand& band, CoefficientMask mask) noexcept
      : ahead_(~CoefficientMask{0} >> (63 - band.last) & ~CoefficientMask{0} << band.first),
        old_(mask & ahead_) {}

  [[nodiscard]] bool has_ended() const noexcept { return ahead_ == 0; }
  [[nodiscard]] CoefficientMask zeros_ahead() const noexcept { return ahead_ & ~old_; }

  /// Passes all before the place of a new coefficient, and that; or all if `place` is 0.
  [[gnu::always_inline]] void pass(ScanReader& reader, CoefficientMask place) noexcept {
    const CoefficientMask before = place - 1;
    read_corrections(reader, old_ & ahead_ & before);
    ahead_ &= ~(before | place);
  }

  [[gnu::always_inline]] void correct(std::int16_t* block, std::uint32_t low) noexcept {
    if (corrections_ == 0) return;
    corrections_ <<= 64 - __builtin_popcountll(old_);
    const std::int32_t grain = 1 << low;
    for (; corrections_ != 0; corrections_ <<= 1, old_ &= old_ - 1) {
      std::int16_t& coefficient =
          block[natural_order[static_cast<unsigned>(__builtin_ctzll(old_))]];
      const std::int32_t grown = coefficient < 0 ? -grain : grain;
      const auto chosen = -static_cast<std::int32_t>(corrections_ >> 63);
      coefficient = static_cast<std::int16_t>(coefficient + (grown & chosen));
    }
  }

 private:
  /// After refill and at most one code and its sign.
  [[gnu::always_inline]] void read_corrections(ScanReader& reader, CoefficientMask which) noexcept {
    constexpr int most = 40;
    int count = __builtin_popcountll(which);
    if (count > most) [[unlikely]] {
      corrections_ = corrections_ << most | reader.take_bits(most);
      count -= most;
      reader.refill();
    }
    corrections_ = corrections_ << count | reader.take_bits(count);
  }

  CoefficientMask ahead_;  ///< what of the band is still to be passed
  CoefficientMask old_;
  std::uint64_t corrections_ = 0;  ///< in the order of the coefficients, the last one lowest
};

/// What a symbol of a refining scan says.
struct RefinementSymbol {
  std::uint32_t run;
  std::int32_t sign;           ///< of a new coefficient; 0: none
  std::uint32_t ended_blocks;  ///< not 0: this one and those behind it
};

/// A symbol whose code is too long for a look-up or begins a run of ended blocks; refills after it.
bool take_refinement_symbol(ScanReader& reader, const HuffmanTable& table,
                            HuffmanTable::Entry entry, RefinementSymbol& found) noexcept;

/// `nth_bit(mask, n)` leaves the n-th bit of those set, counted from 0; 0 if there are fewer.
template <auto nth_bit>
[[gnu::always_inline]] inline bool refine_block(ScanReader& reader, const AcBand& band,
                                                std::int16_t* block, CoefficientMask& mask,
                                                std::uint32_t& ended_blocks) noexcept {
  RefinedBlock refined(band, mask);
  while (ended_blocks == 0 && !refined.has_ended()) {
    reader.refill();
    const HuffmanTable::Entry entry = (*band.table)[reader.peek(HuffmanTable::lookup_bits)];
    RefinementSymbol symbol{entry.skip(), entry.value(), 0};
    if (entry.length() != 0) [[likely]] {
      reader.drop(entry);
      ended_blocks = symbol.run == HuffmanTable::past_the_end;
    } else {
      if (!take_refinement_symbol(reader, *band.table, entry, symbol)) return false;
      ended_blocks = symbol.ended_blocks;
    }
    if (ended_blocks != 0) break;
    const CoefficientMask place = nth_bit(refined.zeros_ahead(), symbol.run);
    if (symbol.sign != 0) {
      if (place == 0 || symbol.sign * symbol.sign != 1) return false;
      block[natural_order[static_cast<unsigned>(__builtin_ctzll(place))]] =
          static_cast<std::int16_t>(symbol.sign * (1 << band.low));
      mask |= place;
    }
    refined.pass(reader, place);
  }
  if (ended_blocks != 0) {
    reader.refill();
    refined.pass(reader, 0);
    --ended_blocks;
  }
  refined.correct(block, band.low);
  return true;
}

template <auto nth_bit>
[[gnu::always_inline]] inline bool refine_each_block(ScanReader& reader, const AcBand& band,
                                                     Coefficients* blocks, CoefficientMask* masks,
                                                     std::size_t count,
                                                     std::uint32_t& ended_blocks) noexcept {
  ScanReader own = reader;  // in registers
  bool sound = true;
  std::uint32_t ended = ended_blocks;
  for (std::size_t i = 0; i < count && sound; ++i) {
    sound = refine_block<nth_bit>(own, band, blocks[i], masks[i], ended);
  }
  reader = own;
  ended_blocks = ended;
  return sound;
}

/// nth_bit without an instruction for it.
[[gnu::always_inline]] inline CoefficientMask nth_bit_by_counting(CoefficientMask mask,
                                                                  std::uint32_t n) noexcept {
  for (; n > 0; --n) mask &= mask - 1;
  return mask & (0 - mask);
}

}  // namespace fastio
