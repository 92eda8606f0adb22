// What of a scan is passed over: restart intervals, or MCUs between points that are known.
#include <algorithm>

#include "fastio/huffman.h"
#include "scan_reader.h"

namespace fastio {

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
