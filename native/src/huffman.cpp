// The bits of a scan into coefficients.
#include "fastio/huffman.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "huffman_mcu.h"
#include "scan_reader.h"

namespace fastio {

HuffmanDecoder::HuffmanDecoder() noexcept : decode_two_mcus_(decode_two_mcus(simd_level())) {}

void HuffmanDecoder::set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  dc_tables_[number].build(codes, HuffmanUse::dc);
}

void HuffmanDecoder::set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  ac_tables_[number].build(codes, HuffmanUse::ac);
}

void HuffmanDecoder::begin(std::span<const Block> blocks, std::size_t mcu_count,
                           std::uint32_t restart_interval) noexcept {
  block_count_ = blocks.size();
  for (std::size_t i = 0; i < block_count_; ++i) {
    const Block& block = blocks[i];
    blocks_[i] = {&dc_tables_[block.dc_table], &ac_tables_[block.ac_table], block.component};
  }
  mcu_count_ = mcu_count;
  lane_ = {};
  mode_ = Mode::decode;
  restart_interval_ = restart_interval;
  // An interval begins with an event, the first one too.
  until_event_ = restart_interval == 0 ? std::numeric_limits<std::size_t>::max() : 0;
  interval_ = std::numeric_limits<std::size_t>::max();
  read_up_to_ = 0;
  mcus_per_row_ = 0;
  places_ = Intervals();
  table_ = nullptr;
  ahead_mcus_ = 0;
}

Status HuffmanDecoder::decode_mcu(Bytes& input, Coefficients* const* blocks) noexcept {
  if (until_event_ == 0) {
    const bool is_wanted = blocks != nullptr;
    const Status status = table_ != nullptr ? next_stretch(input, is_wanted) : next_interval(input);
    if (status != Status::ok) return status;
  }
  --until_event_;
  switch (mode_) {
    case Mode::pass_over: return Status::ok;
    case Mode::hand_out: hand_out(input, blocks); return Status::ok;
    case Mode::decode_two:
      if (decode_two(input, blocks)) return Status::ok;
      // One of them is damaged: as if there were one alone.
      ahead_mcus_ = 0;
      mode_ = Mode::decode;
      for (std::size_t i = 0; i < block_count_ && blocks != nullptr; ++i) {
        std::ranges::fill(*blocks[i], std::int16_t{0});
      }
      break;
    case Mode::decode: break;
  }
  return decode(input, blocks);
}

Status HuffmanDecoder::decode(Bytes& input, Coefficients* const* blocks) noexcept {
  HuffmanLane lane{ScanReader(input, lane_.bits), lane_.predictions};
  bool sound = decode_one_mcu({blocks_.data(), block_count_}, lane, blocks, discarded_);
  if (lane.reader.overrun()) {
    const Bytes rest = lane.reader.rest();
    const bool ended =
        std::ranges::all_of(rest, [](auto byte) { return byte == ScanReader::marker_start; });
    return ended ? Status::truncated : Status::corrupt;
  }
  lane_ = {lane.reader.bits(), lane.predictions};
  input = lane.reader.rest();
  if (until_event_ == 0 && table_ != nullptr) sound = sound && agrees(lane_, input, row_);
  return sound ? Status::ok : Status::corrupt;
}

/// The next MCU and the one beside it in the row or interval that comes next. False, and nothing
/// but the blocks changed, for damage in either.
bool HuffmanDecoder::decode_two(Bytes& input, Coefficients* const* blocks) noexcept {
  HuffmanLane lane{ScanReader(input, lane_.bits), lane_.predictions};
  HuffmanLane other{ScanReader(ahead_input_, ahead_.bits), ahead_.predictions};
  std::int16_t* const ahead = ahead_blocks_ + ahead_done_ * block_count_ * block_size;
  std::memset(ahead, 0, block_count_ * sizeof(Coefficients));
  const bool sound =
      decode_two_mcus_({blocks_.data(), block_count_}, lane, blocks, discarded_, other, ahead);
  if (!sound || lane.reader.overrun() || other.reader.overrun()) return false;
  const Lane end{lane.reader.bits(), lane.predictions};
  const Lane other_end{other.reader.bits(), other.predictions};
  if (until_event_ == 0 && table_ != nullptr &&
      !(agrees(end, lane.reader.rest(), row_) &&
        agrees(other_end, other.reader.rest(), row_ + 1))) {
    return false;
  }
  lane_ = end;
  input = lane.reader.rest();
  ahead_ = other_end;
  ahead_input_ = other.reader.rest();
  if (++ahead_done_ == ahead_mcus_) mode_ = Mode::decode;
  return true;
}

/// Lets row or interval `number` be decoded with the one that begins now, if there is room for it.
void HuffmanDecoder::decode_ahead(std::size_t number, std::size_t mcus) noexcept {
  constexpr std::size_t most_bytes = std::size_t{1} << 20;  // what caches that are near may hold
  const std::size_t bytes = mcus * block_count_ * sizeof(Coefficients);
  if (bytes == 0 || bytes > most_bytes) return;
  ahead_blocks_ = reinterpret_cast<std::int16_t*>(ahead_memory_.reserve(bytes));
  if (ahead_blocks_ == nullptr) return;
  ahead_number_ = number;
  ahead_mcus_ = mcus;
  ahead_done_ = 0;
  mode_ = Mode::decode_two;
}

/// Whether all of row or interval `number` has been decoded.
bool HuffmanDecoder::is_decoded(std::size_t number) const noexcept {
  return ahead_mcus_ > 0 && ahead_number_ == number && ahead_done_ == ahead_mcus_;
}

/// The next MCU of those that have been decoded ahead.
void HuffmanDecoder::hand_out(Bytes& input, Coefficients* const* blocks) noexcept {
  const std::int16_t* from = ahead_blocks_ + ahead_done_ * block_count_ * block_size;
  for (std::size_t i = 0; i < block_count_ && blocks != nullptr; ++i, from += block_size) {
    std::memcpy(*blocks[i], from, sizeof(Coefficients));
  }
  if (++ahead_done_ < ahead_mcus_) return;
  ahead_mcus_ = 0;
  lane_ = ahead_;
  input = ahead_input_;
  mode_ = Mode::decode;
}

}  // namespace fastio
