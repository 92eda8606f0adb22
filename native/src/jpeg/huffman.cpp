// Huffman tables made for decoding.

#include "jpeg/huffman.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "jpeg/huffman_mcu.h"
#include "jpeg/scan_reader.h"

namespace fastio {

namespace {

/// A value of `size` bits as JPEG sends it: without a sign, negative ones less one.
constexpr int extend(int bits, int size) noexcept {
  return bits < 1 << (size - 1) ? bits + 1 - (1 << size) : bits;
}

}  // namespace

HuffmanTable::Entry HuffmanTable::Entry::coefficient(int length, std::uint32_t skip,
                                                     int value) noexcept {
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint16_t>(value));
  return Entry(high << 16 | skip << 8 | static_cast<std::uint32_t>(length));
}

HuffmanTable::Entry HuffmanTable::Entry::symbol(int code_length, std::uint8_t symbol) noexcept {
  return Entry(static_cast<std::uint32_t>(code_length) << 16 | std::uint32_t{symbol} << 8);
}

bool HuffmanTable::is_built_from(const HuffmanCodes& codes, HuffmanUse use) const noexcept {
  return use == use_ && std::ranges::equal(codes.counts, counts_) &&
         std::ranges::equal(codes.symbols, symbols_);
}

void HuffmanTable::build(const HuffmanCodes& codes, HuffmanUse use) noexcept {
  if (is_built_from(codes, use)) return;
  std::ranges::copy(codes.counts, counts_.begin());
  std::ranges::copy(codes.symbols, symbols_.begin());
  use_ = use;
  entries_.fill(Entry());
  std::uint32_t code = 0;
  std::uint32_t position = 0;
  for (int length = 1; length <= longest_code; ++length) {
    const auto l = static_cast<std::size_t>(length);
    codes_[l] = code;
    firsts_[l] = position;
    for (int i = 0; i < counts_[l - 1]; ++i, ++code, ++position) {
      if (length <= lookup_bits) fill(code, length, symbols_[position & 0xFF]);
    }
    limits_[l] = code << (longest_code - length);
    code <<= 1;
  }
}

/// Writes what follows from a code to all entries that begin with it.
void HuffmanTable::fill(std::uint32_t code, int length, std::uint8_t symbol) noexcept {
  const int free_bits = lookup_bits - length;
  const std::size_t first = static_cast<std::size_t>(code) << free_bits;
  const int size = symbol & 15;
  const std::uint32_t run = symbol >> 4;
  const bool begins_run =
      use_ == HuffmanUse::progressive_ac && size == 0 && run != 0 && run != zero_run;
  for (int rest = 0; rest < 1 << free_bits; ++rest) {
    Entry& entry = entries_[(first + static_cast<std::size_t>(rest)) % entries_.size()];
    if (use_ == HuffmanUse::dc || begins_run || size > free_bits) {
      entry = Entry::symbol(length, symbol);
    } else if (size > 0) {
      entry = Entry::coefficient(length + size, run, extend(rest >> (free_bits - size), size));
    } else {
      entry = Entry::coefficient(length, run == zero_run ? run : past_the_end, 0);
    }
  }
}

HuffmanTable::Symbol HuffmanTable::find(std::uint32_t next16) const noexcept {
  for (int length = 1; length <= longest_code; ++length) {
    const auto l = static_cast<std::size_t>(length);
    if (next16 >= limits_[l]) continue;
    const std::uint32_t code = next16 >> (longest_code - length);
    return {length, symbols_[(firsts_[l] + code - codes_[l]) & 0xFF]};
  }
  return {0, 0};
}

// The bits of a scan into coefficients.

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

// What of a scan is passed over: restart intervals, or MCUs between points that are known.

void HuffmanDecoder::pass_over_all_but(const Wanted& wanted, std::size_t mcus_per_row) noexcept {
  wanted_ = wanted;
  mcus_per_row_ = mcus_per_row;
}

void HuffmanDecoder::jump_by(const Intervals& places, Bytes file) noexcept {
  places_ = places.are_places_of(file) ? places : Intervals();
  file_ = file;
}

bool HuffmanDecoder::is_wanted(std::size_t interval) const noexcept {
  if (mcus_per_row_ == 0) return true;
  const std::size_t first = interval * restart_interval_;
  const std::size_t last = first + restart_interval_ - 1;
  std::size_t row = first / mcus_per_row_;
  std::size_t column = first - row * mcus_per_row_;
  const std::size_t last_row = std::min(last / mcus_per_row_, wanted_.last_row);
  for (; row <= last_row; ++row, column = 0) {
    const std::size_t last_column = std::min(last - row * mcus_per_row_, mcus_per_row_ - 1);
    if (row >= wanted_.first_row && column <= wanted_.last_column &&
        last_column >= wanted_.first_column) {
      return true;
    }
  }
  return false;
}

/// How many MCUs an interval has: the last one may be shorter.
std::size_t HuffmanDecoder::mcus_of(std::size_t interval) const noexcept {
  const std::size_t first = std::min(interval * restart_interval_, mcu_count_);
  return std::min<std::size_t>(mcu_count_ - first, restart_interval_);
}

/// Moves on to the next interval, and the input to its beginning if it is wanted.
Status HuffmanDecoder::next_interval(Bytes& input) noexcept {
  ++interval_;
  until_event_ = restart_interval_;
  mode_ = is_wanted(interval_) ? Mode::decode : Mode::pass_over;
  if (mode_ == Mode::pass_over) return Status::ok;
  const std::size_t from = read_up_to_;
  read_up_to_ = interval_;
  if (is_decoded(interval_)) {
    ahead_done_ = 0;
    mode_ = Mode::hand_out;
    return Status::ok;
  }
  lane_ = {};
  const Status status = find_interval(input, from, interval_);
  if (status == Status::ok) look_for_next_interval(input);
  return status;
}

/// Moves `input`, which stands in interval `from`, to where interval `to` begins.
Status HuffmanDecoder::find_interval(Bytes& input, std::size_t from,
                                     std::size_t to) const noexcept {
  if (to - from > 1) {
    // To the last one whose place is known, if that is right and ahead.
    const auto [interval, rest] = places_.before(to, file_);
    if (interval > from && rest.data() > input.data()) {
      input = rest;
      from = interval;
    }
  }
  for (; from < to; ++from) {
    const Status status = pass_restart_marker(input, from);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

/// Lets the next interval that is wanted be decoded with the one that begins at `input`, if it is
/// near.
void HuffmanDecoder::look_for_next_interval(Bytes input) noexcept {
  const std::size_t last = interval_ + 2 + mcus_per_row_ / restart_interval_;
  std::size_t next = interval_ + 1;
  while (next < last && !is_wanted(next)) ++next;
  if (next == last || find_interval(input, interval_, next) != Status::ok) return;
  ahead_ = {};
  ahead_input_ = input;
  decode_ahead(next, mcus_of(next));
}

bool HuffmanDecoder::jump_by(const JumpTable& table, const Wanted& wanted, Bytes file,
                             Bytes input) noexcept {
  const ScanGrid& grid = table.grid();
  const auto start = static_cast<std::uint64_t>(input.data() - file.data()) * 8;
  if (restart_interval_ != 0 || lane_.bits.count != 0 || table.at(0, 0).bit != start) return false;
  table_ = &table;
  file_ = file;
  wanted_ = wanted;
  first_point_ = 0;
  while (first_point_ + 1 < grid.points_per_row() &&
         grid.column(first_point_ + 1) <= wanted.first_column) {
    ++first_point_;
  }
  // A start that leads to no known point would be believed blindly.
  stop_column_ = std::max(wanted.last_column + 1, grid.column(first_point_ + 1));
  row_ = column_ = until_event_ = 0;
  mode_ = Mode::pass_over;
  return true;
}

/// Moves on by a stretch of a row: one without points in it that is decoded, or one that is not.
Status HuffmanDecoder::next_stretch(Bytes& input, bool is_wanted) noexcept {
  const ScanGrid& grid = table_->grid();
  const std::size_t start_column = grid.column(first_point_);
  if (column_ == grid.columns) {
    ++row_;
    column_ = 0;
  }
  std::size_t stop = grid.columns;
  if ((column_ == 0 && !is_wanted) || column_ >= stop_column_) {
    mode_ = Mode::pass_over;
  } else if (column_ < start_column) {
    mode_ = Mode::pass_over;
    stop = start_column;
  } else if (column_ == start_column && is_decoded(row_)) {
    ahead_done_ = 0;
    mode_ = Mode::hand_out;
    stop = stop_column_;
  } else {
    if (column_ == start_column) {
      if (row_ > wanted_.last_row) return Status::corrupt;  // the points end before
      next_point_ = first_point_;
      if (!enter(table_->at(row_, next_point_), input, lane_)) return Status::corrupt;
      mode_ = Mode::decode;
      look_at_next_row();
    }
    stop = std::min(grid.column(++next_point_), stop_column_);
  }
  until_event_ = stop - column_;
  column_ = stop;
  return Status::ok;
}

/// Lets the next row be decoded with the one that begins.
void HuffmanDecoder::look_at_next_row() noexcept {
  const std::size_t next = row_ + 1;
  if (next > wanted_.last_row) return;
  if (!enter(table_->at(next, first_point_), ahead_input_, ahead_)) return;
  decode_ahead(next, stop_column_ - column_);
}

/// Whether decoding has come to the next point where that is known to be.
bool HuffmanDecoder::agrees(const Lane& lane, Bytes input, std::size_t row) const noexcept {
  if (column_ != table_->grid().column(next_point_)) return true;
  return row <= wanted_.last_row && point_of(lane, file_, input) == table_->at(row, next_point_);
}

bool HuffmanDecoder::enter(const ScanPoint& point, Bytes& input, Lane& lane) const noexcept {
  const std::uint64_t at = point.bit / 8;
  const int used = static_cast<int>(point.bit % 8);
  if (at >= file_.size()) return false;
  input = file_.subspan(at);
  lane = {{}, point.dc};
  if (used == 0) return true;
  const std::uint8_t byte = input[0];
  const std::size_t size = byte == ScanReader::marker_start ? 2 : 1;
  if (input.size() < size || (size == 2 && input[1] != 0)) return false;
  lane.bits.buffer = std::uint64_t{byte} << 56 << used;
  lane.bits.count = 8 - used;
  input = input.subspan(size);
  return true;
}

ScanPoint HuffmanDecoder::point(Bytes file, Bytes input) const noexcept {
  return point_of(lane_, file, input);
}

ScanPoint HuffmanDecoder::point_of(const Lane& lane, Bytes file, Bytes input) noexcept {
  const std::uint8_t* next = input.data();
  const int count = lane.bits.count - lane.bits.padding;
  for (int i = 0; i < (count + 7) / 8; ++i) {
    --next;
    if (next[0] == 0 && next - file.data() > 0 && next[-1] == ScanReader::marker_start) --next;
  }
  const auto byte = static_cast<std::uint64_t>(next - file.data());
  return {8 * byte + static_cast<std::uint64_t>(-count & 7), lane.predictions};
}

}  // namespace fastio
