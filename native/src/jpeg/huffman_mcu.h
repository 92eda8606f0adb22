/// One MCU of a scan into blocks; two MCUs from two places in it at once.
///
/// What decoding waits for is the length of each code, before which the next one cannot be looked
/// up: codes from another place fill the wait. Two at once are compiled for several instruction
/// sets: one alone waits whatever shifts it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/simd.h"
#include "jpeg/huffman.h"
#include "jpeg/scan_reader.h"

namespace fastio {

/// Where an MCU is decoded from, and where to.
struct HuffmanLane {
  ScanReader reader;
  HuffmanPredictions predictions;
};

[[nodiscard]] DecodeTwoMcus decode_two_mcus(SimdLevel level) noexcept;

#if defined(__x86_64__)
bool avx2_decode_two_mcus(std::span<const HuffmanBlock> mcu, HuffmanLane& lane,
                          Coefficients* const* blocks, std::int16_t* discarded, HuffmanLane& other,
                          std::int16_t* ahead) noexcept;
#endif

inline constexpr std::uint32_t block_size = std::extent_v<Coefficients>;

/// How many coefficients can be looked up between two refills.
inline constexpr int lookups_per_refill = 56 / HuffmanTable::lookup_bits;

/// The value of a block that all others follow. False for a code that is none.
[[gnu::always_inline]] inline bool decode_dc(ScanReader& reader, const HuffmanTable& table,
                                             std::int32_t& prediction,
                                             std::int16_t* block) noexcept {
  std::uint32_t symbol = 0;
  reader.refill();
  const HuffmanTable::Entry dc = table[reader.peek(HuffmanTable::lookup_bits)];
  if (!reader.take_symbol(table, dc, symbol)) return false;
  const std::int32_t difference = reader.take_value(static_cast<int>(symbol));
  // Wraps around in damaged files, as it does in libjpeg.
  prediction = static_cast<std::int32_t>(static_cast<std::uint32_t>(prediction) +
                                         static_cast<std::uint32_t>(difference));
  block[0] = static_cast<std::int16_t>(prediction);
  return true;
}

/// A coefficient whose entry says it all.
[[gnu::always_inline]] inline void take_coefficient(ScanReader& reader, HuffmanTable::Entry entry,
                                                    std::uint32_t& k,
                                                    std::int16_t* block) noexcept {
  reader.drop(entry);
  k += entry.skip();
  block[natural_order[k]] = entry.value();
  ++k;
}

/// Any other one. False for a code that is none.
[[gnu::always_inline]] inline bool take_long_coefficient(ScanReader& reader,
                                                         const HuffmanTable& table,
                                                         HuffmanTable::Entry entry,
                                                         std::uint32_t& k,
                                                         std::int16_t* block) noexcept {
  std::uint32_t symbol = 0;
  reader.refill();
  if (!reader.take_symbol(table, entry, symbol)) return false;
  const int size = static_cast<int>(symbol & 15);
  const std::uint32_t run = symbol >> 4;
  k += size == 0 && run != HuffmanTable::zero_run ? HuffmanTable::past_the_end : run;
  block[natural_order[k]] = static_cast<std::int16_t>(reader.take_value(size));
  ++k;
  return true;
}

/// The coefficients of a block from `k` on. False for a code that is none and for a run that leaves
/// the block.
[[gnu::always_inline]] inline bool decode_ac(ScanReader& reader, const HuffmanTable& table,
                                             std::uint32_t k, std::int16_t* block) noexcept {
  while (k < block_size) {
    reader.refill();
    HuffmanTable::Entry entry;
    int step = 0;
    for (; step < lookups_per_refill && k < block_size; ++step) {
      entry = table[reader.peek(HuffmanTable::lookup_bits)];
      if (entry.length() == 0) break;
      take_coefficient(reader, entry, k, block);
    }
    if (step == lookups_per_refill || k >= block_size) continue;
    if (!take_long_coefficient(reader, table, entry, k, block)) return false;
  }
  return k == block_size || block[block_size - 1] == 0;
}

/// The same of two blocks: by turns until one ends.
[[gnu::always_inline]] inline bool decode_two_acs(ScanReader& reader, std::int16_t* block,
                                                  ScanReader& other, std::int16_t* ahead,
                                                  const HuffmanTable& table) noexcept {
  std::uint32_t k = 1;
  std::uint32_t other_k = 1;
  do {
    reader.refill();
    other.refill();
    HuffmanTable::Entry entry;
    HuffmanTable::Entry other_entry;
    int step = 0;
    // Of conditions that seldom differ from those before, `&` and `|` make one branch.
    for (; step < lookups_per_refill && (k < block_size) & (other_k < block_size); ++step) {
      entry = table[reader.peek(HuffmanTable::lookup_bits)];
      other_entry = table[other.peek(HuffmanTable::lookup_bits)];
      if (int{entry.length() == 0} | int{other_entry.length() == 0}) break;
      take_coefficient(reader, entry, k, block);
      take_coefficient(other, other_entry, other_k, ahead);
    }
    if (step == lookups_per_refill || k >= block_size || other_k >= block_size) continue;
    if (entry.length() == 0 && !take_long_coefficient(reader, table, entry, k, block)) return false;
    if (other_entry.length() == 0 &&
        !take_long_coefficient(other, table, other_entry, other_k, ahead)) {
      return false;
    }
  } while ((k < block_size) & (other_k < block_size));
  return decode_ac(reader, table, k, block) && decode_ac(other, table, other_k, ahead);
}

[[gnu::always_inline]] inline bool decode_one_mcu(std::span<const HuffmanBlock> mcu,
                                                  HuffmanLane& lane, Coefficients* const* blocks,
                                                  std::int16_t* discarded) noexcept {
  ScanReader reader = lane.reader;  // in registers
  bool sound = true;
  for (std::size_t i = 0; i < mcu.size() && sound; ++i) {
    std::int16_t* const block = blocks == nullptr ? discarded : *blocks[i];
    sound = decode_dc(reader, *mcu[i].dc, lane.predictions[mcu[i].component], block) &&
            decode_ac(reader, *mcu[i].ac, 1, block);
  }
  lane.reader = reader;
  return sound;
}

[[gnu::always_inline]] inline bool decode_both_mcus(std::span<const HuffmanBlock> mcu,
                                                    HuffmanLane& lane, Coefficients* const* blocks,
                                                    std::int16_t* discarded, HuffmanLane& other,
                                                    std::int16_t* ahead) noexcept {
  ScanReader reader = lane.reader;
  ScanReader other_reader = other.reader;
  bool sound = true;
  for (std::size_t i = 0; i < mcu.size() && sound; ++i, ahead += block_size) {
    const HuffmanBlock& next = mcu[i];
    std::int16_t* const block = blocks == nullptr ? discarded : *blocks[i];
    sound = decode_dc(reader, *next.dc, lane.predictions[next.component], block) &&
            decode_dc(other_reader, *next.dc, other.predictions[next.component], ahead) &&
            decode_two_acs(reader, block, other_reader, ahead, *next.ac);
  }
  lane.reader = reader;
  other.reader = other_reader;
  return sound;
}

}  // namespace fastio
