#include "jpeg/progressive.h"

#include <algorithm>
#include <cstring>

#include "jpeg/ac_refinement.h"

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

namespace {

/// What missing bits mean: the end of the file, or a marker too early.
Status status_of_overrun(Bytes rest) noexcept {
  const bool ended =
      std::ranges::all_of(rest, [](auto byte) { return byte == ScanReader::marker_start; });
  return ended ? Status::truncated : Status::corrupt;
}

/// False for a code that is none, a value behind the band, and one that 16 bits do not hold.
[[gnu::always_inline]] inline bool decode_block(ScanReader& reader, const AcBand& band,
                                                std::int16_t* block, CoefficientMask& mask,
                                                std::uint32_t& ended_blocks) noexcept {
  if (ended_blocks > 0) {
    --ended_blocks;
    return true;
  }
  constexpr int lookup_bits = HuffmanTable::lookup_bits;
  constexpr int entries_per_refill = 56 / lookup_bits;
  const HuffmanTable& table = *band.table;
  const std::uint32_t last = band.last;
  const auto low = static_cast<int>(band.low);
  CoefficientMask added = 0;
  std::int32_t lost = 0;  // not 0 if 16 bits do not hold a value
  const auto put = [&](std::uint32_t k, std::int32_t value) {
    const std::int32_t shifted = value * (1 << low);
    block[natural_order[k]] = static_cast<std::int16_t>(shifted);
    lost |= shifted ^ block[natural_order[k]];
    added |= CoefficientMask{value != 0} << k;
  };
  std::uint32_t k = band.first;
  while (k <= last) {
    reader.refill();
    HuffmanTable::Entry entry;
    int step = 0;
    for (; step < entries_per_refill && k <= last; ++step) {
      entry = table[reader.peek(lookup_bits)];
      if (entry.length() == 0) break;
      reader.drop(entry);
      k += entry.skip();
      if (k > last) {  // the block ends, or 16 zeros lead behind it
        mask |= added;
        return entry.value() == 0 && lost == 0;
      }
      put(k, entry.value());
      ++k;
    }
    if (step == entries_per_refill || k > last) continue;
    reader.refill();
    std::uint32_t symbol = 0;
    if (!reader.take_symbol(table, entry, symbol)) return false;
    const int size = static_cast<int>(symbol & 15);
    const std::uint32_t run = symbol >> 4;
    if (size == 0 && run != HuffmanTable::zero_run) {
      ended_blocks =
          (1U << run) - 1 + static_cast<std::uint32_t>(reader.take_bits(static_cast<int>(run)));
      break;
    }
    k += run;
    if (k > last && size != 0) return false;
    if (size != 0) put(k, reader.take_value(size));
    ++k;
  }
  mask |= added;
  return lost == 0;
}

}  // namespace

ProgressiveDecoder::ProgressiveDecoder(SimdLevel level) noexcept : refine_(refine_blocks(level)) {}

bool ProgressiveDecoder::begin_picture(std::span<const Size> components) noexcept {
  std::size_t blocks = 0;
  for (const Size& size : components) blocks += size.blocks_a_row * size.rows;
  std::uint8_t* memory = mask_memory_.reserve(blocks * sizeof(CoefficientMask));
  if (memory == nullptr) return false;
  std::memset(memory, 0, blocks * sizeof(CoefficientMask));
  auto* masks = reinterpret_cast<CoefficientMask*>(memory);
  for (std::size_t i = 0; i < components.size(); ++i) {
    sizes_[i] = components[i];
    masks_[i] = masks;
    masks += sizes_[i].blocks_a_row * sizes_[i].rows;
  }
  return true;
}

void ProgressiveDecoder::set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  dc_tables_[number].build(codes, HuffmanUse::dc);
}

void ProgressiveDecoder::set_ac_table(const HuffmanCodes& codes) noexcept {
  ac_table_.build(codes, HuffmanUse::progressive_ac);
}

void ProgressiveDecoder::begin_scan(const Scan& scan,
                                    std::span<const Component> components) noexcept {
  scan_ = scan;
  std::ranges::copy(components, components_.begin());
  predictions_ = {};
  ended_blocks_ = 0;
  until_restart_ = scan.restart_interval;
  restarts_ = 0;
  bits_ = {};
}

Status ProgressiveDecoder::decode_row(Bytes& input, std::span<const Rows> rows,
                                      std::size_t mcus) noexcept {
  ScanReader reader(input, bits_);
  bool sound = true;
  std::size_t done = 0;
  while (done < mcus && sound) {
    std::size_t stop = mcus;
    if (scan_.restart_interval != 0) {
      if (until_restart_ == 0) {
        const Status status = restart(reader);
        if (status != Status::ok) return status;
      }
      stop = std::min<std::size_t>(mcus, done + until_restart_);
      until_restart_ -= static_cast<std::uint32_t>(stop - done);
    }
    sound = scan_.first == 0 ? decode_dc(reader, rows, done, stop)
                             : decode_ac(reader, rows[0], done, stop);
    done = stop;
  }
  if (reader.overrun()) return status_of_overrun(reader.rest());
  bits_ = reader.bits();
  input = reader.rest();
  return sound ? Status::ok : Status::corrupt;
}

/// Goes on behind the next restart marker.
Status ProgressiveDecoder::restart(ScanReader& reader) noexcept {
  Bytes rest = reader.rest();
  if (reader.overrun()) return status_of_overrun(rest);
  const Status status = pass_restart_marker(rest, restarts_++);
  reader = ScanReader(rest, {});
  predictions_ = {};
  ended_blocks_ = 0;
  until_restart_ = scan_.restart_interval;
  return status;
}

/// MCUs `first` to `stop`, `stop` excluded, of a scan of DC.
bool ProgressiveDecoder::decode_dc(ScanReader& reader, std::span<const Rows> rows,
                                   std::size_t first, std::size_t stop) noexcept {
  ScanReader own = reader;  // in registers
  bool sound = true;
  for (std::size_t mcu = first; mcu < stop; ++mcu) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Component& component = components_[i];
      for (std::size_t y = 0; y < component.mcu_height; ++y) {
        for (std::size_t x = 0; x < component.mcu_width; ++x) {
          std::int16_t* block = rows[i].blocks[y][mcu * component.mcu_width + x];
          if (scan_.refines) {
            own.refill();
            block[0] = static_cast<std::int16_t>(block[0] | static_cast<int>(own.take_bits(1))
                                                                << scan_.low);
          } else {
            sound = decode_dc(own, i, block) && sound;
          }
        }
      }
    }
  }
  reader = own;
  return sound;
}

/// Blocks `first` to `stop`, `stop` excluded, of a row in a scan of AC.
bool ProgressiveDecoder::decode_ac(ScanReader& reader, const Rows& row, std::size_t first,
                                   std::size_t stop) noexcept {
  Coefficients* const blocks = row.blocks[0];
  const std::size_t component = components_[0].number;
  CoefficientMask* const masks = masks_[component] + row.first_row * sizes_[component].blocks_a_row;
  const AcBand band{&ac_table_, scan_.first, scan_.last, scan_.low};
  if (scan_.refines) {
    return refine_(reader, band, blocks + first, masks + first, stop - first, ended_blocks_);
  }
  ScanReader own = reader;  // in registers
  bool sound = true;
  for (std::size_t i = first; i < stop && sound; ++i) {
    sound = decode_block(own, band, blocks[i], masks[i], ended_blocks_);
  }
  reader = own;
  return sound;
}

[[gnu::always_inline]] inline bool ProgressiveDecoder::decode_dc(ScanReader& reader,
                                                                 std::size_t component,
                                                                 std::int16_t* block) noexcept {
  const HuffmanTable& table = dc_tables_[components_[component].dc_table];
  std::uint32_t symbol = 0;
  reader.refill();
  const HuffmanTable::Entry entry = table[reader.peek(HuffmanTable::lookup_bits)];
  if (!reader.take_symbol(table, entry, symbol)) return false;
  const auto difference = static_cast<std::uint32_t>(reader.take_value(static_cast<int>(symbol)));
  // Wraps around in damaged files, as it does in libjpeg.
  std::int32_t& prediction = predictions_[component];
  prediction = static_cast<std::int32_t>(static_cast<std::uint32_t>(prediction) + difference);
  block[0] = static_cast<std::int16_t>(static_cast<std::uint32_t>(prediction) << scan_.low);
  return true;
}

}  // namespace fastio
