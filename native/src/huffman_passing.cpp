// What of a scan is passed over: restart intervals, or MCUs between points that are known.
#include <algorithm>

#include "fastio/huffman.h"
#include "scan_reader.h"

namespace fastio {

void HuffmanDecoder::pass_over_all_but(const Wanted& wanted, std::size_t mcus_per_row) noexcept {
  wanted_ = wanted;
  mcus_per_row_ = mcus_per_row;
  passing_over_ = restart_interval_ != 0 && !interval_is_wanted();
}

void HuffmanDecoder::jump_by(const Intervals& places, Bytes file) noexcept {
  places_ = places.are_places_of(file) ? places : Intervals();
  file_ = file;
}

bool HuffmanDecoder::interval_is_wanted() const noexcept {
  if (mcus_per_row_ == 0) return true;
  const std::size_t first = interval_ * restart_interval_;
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

/// Moves on to the next interval, and the input to its beginning if it is wanted.
Status HuffmanDecoder::next_interval(Bytes& input) noexcept {
  ++interval_;
  until_event_ = restart_interval_;
  passing_over_ = !interval_is_wanted();
  if (passing_over_) return Status::ok;
  predictions_ = {};
  bits_ = {};
  if (interval_ - read_up_to_ > 1) jump(input);
  while (read_up_to_ < interval_) {
    const Status status = pass_restart_marker(input, read_up_to_);
    if (status != Status::ok) return status;
    ++read_up_to_;
  }
  return Status::ok;
}

/// Goes to the last interval whose place is known, if that is right and ahead.
void HuffmanDecoder::jump(Bytes& input) noexcept {
  const auto [interval, rest] = places_.before(interval_, file_);
  if (interval <= read_up_to_ || rest.data() <= input.data()) return;
  input = rest;
  read_up_to_ = interval;
}

bool HuffmanDecoder::jump_by(const JumpTable& table, const Wanted& wanted, Bytes file,
                             Bytes input) noexcept {
  const ScanGrid& grid = table.grid();
  const auto start = static_cast<std::uint64_t>(input.data() - file.data()) * 8;
  if (restart_interval_ != 0 || bits_.count != 0 || table.at(0, 0).bit != start) return false;
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
  passing_over_ = true;
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
    passing_over_ = true;
  } else if (column_ < start_column) {
    passing_over_ = true;
    stop = start_column;
  } else {
    if (passing_over_) {
      if (row_ > wanted_.last_row) return Status::corrupt;  // the points end before
      next_point_ = first_point_;
      if (!enter(table_->at(row_, next_point_), input)) return Status::corrupt;
      passing_over_ = false;
    }
    if (column_ == 0) next_point_ = 0;
    stop = std::min(grid.column(++next_point_), stop_column_);
  }
  until_event_ = stop - column_;
  column_ = stop;
  return Status::ok;
}

/// Whether decoding has come to the next point where that is known to be.
bool HuffmanDecoder::agrees(Bytes input) const noexcept {
  if (column_ != table_->grid().column(next_point_)) return true;
  return row_ <= wanted_.last_row && point(file_, input) == table_->at(row_, next_point_);
}

bool HuffmanDecoder::enter(const ScanPoint& point, Bytes& input) noexcept {
  const std::uint64_t at = point.bit / 8;
  const int used = static_cast<int>(point.bit % 8);
  if (at >= file_.size()) return false;
  input = file_.subspan(at);
  bits_ = {};
  predictions_ = point.dc;
  if (used == 0) return true;
  const std::uint8_t byte = input[0];
  const std::size_t size = byte == ScanReader::marker_start ? 2 : 1;
  if (input.size() < size || (size == 2 && input[1] != 0)) return false;
  bits_.buffer = std::uint64_t{byte} << 56 << used;
  bits_.count = 8 - used;
  input = input.subspan(size);
  return true;
}

ScanPoint HuffmanDecoder::point(Bytes file, Bytes input) const noexcept {
  const std::uint8_t* next = input.data();
  const int count = bits_.count - bits_.padding;
  for (int i = 0; i < (count + 7) / 8; ++i) {
    --next;
    if (next[0] == 0 && next - file.data() > 0 && next[-1] == ScanReader::marker_start) --next;
  }
  const auto byte = static_cast<std::uint64_t>(next - file.data());
  return {8 * byte + static_cast<std::uint64_t>(-count & 7), predictions_};
}

}  // namespace fastio
