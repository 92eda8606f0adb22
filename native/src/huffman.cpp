// The bits of a scan into coefficients.
#include "fastio/huffman.h"

#include <algorithm>
#include <limits>

#include "scan_reader.h"

namespace fastio {

void HuffmanDecoder::set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  dc_tables_[number].build(codes, HuffmanUse::dc);
}

void HuffmanDecoder::set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  ac_tables_[number].build(codes, HuffmanUse::ac);
}

void HuffmanDecoder::begin(std::span<const Block> blocks, std::uint32_t restart_interval) noexcept {
  block_count_ = blocks.size();
  for (std::size_t i = 0; i < block_count_; ++i) {
    const Block& block = blocks[i];
    blocks_[i] = {&dc_tables_[block.dc_table], &ac_tables_[block.ac_table], block.component};
  }
  predictions_ = {};
  bits_ = {};
  restart_interval_ = restart_interval;
  until_event_ = restart_interval == 0 ? std::numeric_limits<std::size_t>::max() : restart_interval;
  interval_ = read_up_to_ = 0;
  mcus_per_row_ = 0;
  passing_over_ = false;
  places_ = Intervals();
  table_ = nullptr;
}

/// False for a code that is none and for a run that leaves the block.
[[gnu::always_inline]] inline bool HuffmanDecoder::decode_block(ScanReader& reader,
                                                                const Tables& tables,
                                                                std::int32_t& prediction,
                                                                std::int16_t* block) noexcept {
  constexpr int lookup_bits = HuffmanTable::lookup_bits;
  constexpr int entries_per_refill = 56 / lookup_bits;
  std::uint32_t symbol = 0;
  reader.refill();
  const HuffmanTable::Entry dc = (*tables.dc)[reader.peek(lookup_bits)];
  if (!reader.take_symbol(*tables.dc, dc, symbol)) return false;
  const std::int32_t difference = reader.take_value(static_cast<int>(symbol));
  // Wraps around in damaged files, as it does in libjpeg.
  prediction = static_cast<std::int32_t>(static_cast<std::uint32_t>(prediction) +
                                         static_cast<std::uint32_t>(difference));
  block[0] = static_cast<std::int16_t>(prediction);

  const HuffmanTable& table = *tables.ac;
  std::uint32_t k = 1;
  while (k < 64) {
    reader.refill();
    HuffmanTable::Entry entry;
    int step = 0;
    for (; step < entries_per_refill && k < 64; ++step) {
      entry = table[reader.peek(lookup_bits)];
      if (entry.length() == 0) break;
      reader.drop(entry);
      k += entry.skip();
      block[natural_order[k]] = entry.value();
      ++k;
    }
    if (step == entries_per_refill || k >= 64) continue;
    reader.refill();
    if (!reader.take_symbol(table, entry, symbol)) return false;
    const int size = static_cast<int>(symbol & 15);
    const std::uint32_t run = symbol >> 4;
    k += size == 0 && run != 15 ? HuffmanTable::past_the_end : run;
    block[natural_order[k]] = static_cast<std::int16_t>(reader.take_value(size));
    ++k;
  }
  return k == 64 || block[63] == 0;
}

Status HuffmanDecoder::decode_mcu(Bytes& input, Coefficients* const* blocks) noexcept {
  if (until_event_ == 0) {
    const bool is_wanted = blocks != nullptr;
    const Status status = table_ != nullptr ? next_stretch(input, is_wanted) : next_interval(input);
    if (status != Status::ok) return status;
  }
  --until_event_;
  if (passing_over_) return Status::ok;
  ScanReader reader(input, bits_);
  bool sound = true;
  for (std::size_t i = 0; i < block_count_ && sound; ++i) {
    const Tables& tables = blocks_[i];
    std::int16_t* const block = blocks == nullptr ? discarded_ : *blocks[i];
    sound = decode_block(reader, tables, predictions_[tables.component], block);
  }
  if (reader.overrun()) {
    const Bytes rest = reader.rest();
    const bool ended =
        std::ranges::all_of(rest, [](auto byte) { return byte == ScanReader::marker_start; });
    return ended ? Status::truncated : Status::corrupt;
  }
  bits_ = reader.bits();
  input = reader.rest();
  if (until_event_ == 0 && table_ != nullptr) sound = sound && agrees(input);
  return sound ? Status::ok : Status::corrupt;
}

}  // namespace fastio
