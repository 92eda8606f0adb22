#include "jpeg/scan_walker.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "jpeg/scan_reader.h"

namespace fastio {

bool UnstuffedBytes::read(Bytes input) noexcept {
  constexpr std::uint8_t marker_start = 0xFF;
  size_ = removed_count_ = passed_ = 0;
  data_ = memory_.reserve(input.size() + slack);
  // At most every second byte is a zero that is left out.
  removed_ = reinterpret_cast<std::size_t*>(
      removed_memory_.reserve((input.size() / 2 + 1) * sizeof(std::size_t)));
  if (data_ == nullptr || removed_ == nullptr) return false;
  const std::uint8_t* next = input.data();
  const std::uint8_t* const stop = next + input.size();
  for (;;) {
    // Eight bytes at a time up to one that is 0xFF: its bit is the lowest of `found`.
    for (; stop - next >= 8; next += 8, size_ += 8) {
      std::uint64_t bytes;
      std::memcpy(&bytes, next, sizeof bytes);
      std::memcpy(data_ + size_, &bytes, sizeof bytes);
      bytes = little_endian(bytes);
      const std::uint64_t found = (~bytes - 0x0101010101010101) & bytes & 0x8080808080808080;
      if (found == 0) continue;
      const auto before = static_cast<std::size_t>(std::countr_zero(found) / 8);
      next += before;
      size_ += before;
      break;
    }
    while (next != stop && *next != marker_start) data_[size_++] = *next++;
    if (stop - next < 2 || next[1] != 0) break;
    data_[size_++] = marker_start;
    removed_[removed_count_++] = size_;
    next += 2;
  }
  std::memset(data_ + size_, 0, slack);
  return true;
}

void SkipTable::build(const HuffmanCodes& codes, HuffmanUse use) noexcept {
  if (use == use_ && std::ranges::equal(codes.counts, counts_) &&
      std::ranges::equal(codes.symbols, symbols_)) {
    return;
  }
  std::ranges::copy(codes.counts, counts_.begin());
  std::ranges::copy(codes.symbols, symbols_.begin());
  use_ = use;
  entries_[1] = Entry();
  // Nothing follows a DC symbol: the levels before the last have no use.
  for (int bits = use == HuffmanUse::dc ? lookup_bits : 1; bits <= lookup_bits; ++bits) {
    fill_level(bits);
  }
}

/// Fills the entries for `bits` known bits, when those for fewer have been filled.
void SkipTable::fill_level(int bits) noexcept {
  const std::size_t first = std::size_t{1} << bits;
  std::fill_n(&entries_[first], first, bits == lookup_bits ? Entry(0, escape) : Entry());
  std::uint32_t code = 0;
  std::uint32_t position = 0;
  for (int length = 1; length <= bits; ++length) {
    for (int i = 0; i < counts_[static_cast<std::size_t>(length) - 1]; ++i, ++code, ++position) {
      fill(bits, code, length, symbols_[position & 0xFF]);
    }
    code <<= 1;
  }
}

HuffmanTable::Symbol SkipTable::find(std::uint32_t next16) const noexcept {
  std::uint32_t code = 0;  // the first one of a length
  std::uint32_t position = 0;
  for (int length = 1; length <= HuffmanTable::longest_code; ++length) {
    const std::uint32_t number = (next16 >> (HuffmanTable::longest_code - length)) - code;
    const std::uint32_t count = counts_[static_cast<std::size_t>(length) - 1];
    if (number < count) return {length, symbols_[(position + number) & 0xFF]};
    position += count;
    code = (code + count) << 1;
  }
  return {0, 0};
}

/// Writes what follows from a code to all entries of `bits` known bits that begin with it.
void SkipTable::fill(int bits, std::uint32_t code, int length, std::uint8_t symbol) noexcept {
  const bool is_dc = use_ == HuffmanUse::dc;
  const int size = symbol & 15;
  const std::uint32_t run = is_dc ? 0 : symbol >> 4;
  const int total = length + size;
  // Before these bits, the entry that they are the end of has taken the others.
  if (lookup_bits - bits + total > longest_entry) return;
  const bool ends = is_dc || (size == 0 && run != HuffmanTable::zero_run);
  const std::uint32_t advance = is_dc  ? end_of_block + static_cast<std::uint32_t>(size)
                                : ends ? end_of_block
                                       : run + 1;
  const Entry entry(total, advance);
  const std::size_t all = std::size_t{1} << (bits - length);
  const std::size_t first = (std::size_t{1} << bits) + (std::size_t{code} << (bits - length));
  if (first + all > std::size_t{2} << bits) return;  // not a prefix code
  Entry* const out = &entries_[first];
  if (ends || total >= bits) {
    std::fill_n(out, all, entry);
    return;
  }
  const std::size_t rest = std::size_t{1} << (bits - total);
  const Entry* const next = &entries_[rest];
  for (std::size_t j = 0; j < rest; ++j) {
    const Entry both = entry.then(next[j]);
    out[j] = both.advance() % end_of_block > most_coefficients ? entry : both;
  }
  for (std::size_t i = rest; i < all; i += rest) std::copy_n(out, rest, out + i);
}

/// A place in unstuffed bytes, and the bits that follow it. Lives in registers, as ScanReader; it
/// needs no checks, since zeros follow the bytes.
class ScanBitCursor {
 public:
  /// At a bit of `bytes`.
  ScanBitCursor(const UnstuffedBytes& bytes, std::uint64_t position) noexcept
      : data_(bytes.data()), next_(data_), bits_(8 * std::uint64_t{bytes.size()}) {
    go_to(position);
  }
  [[nodiscard]] std::uint64_t position() const noexcept {
    return 8 * static_cast<std::uint64_t>(next_ - data_) - static_cast<std::uint64_t>(count_);
  }
  [[nodiscard]] bool overrun() const noexcept { return position() > bits_; }

  /// Loads bits until there are at least 56.
  [[gnu::always_inline]] void refill() noexcept {
    std::uint64_t bytes;
    std::memcpy(&bytes, next_, sizeof bytes);
    buffer_ |= __builtin_bswap64(little_endian(bytes)) >> count_;
    next_ += (63 - count_) >> 3;
    count_ |= 56;
  }

  [[nodiscard, gnu::always_inline]] std::uint64_t peek(int count) const noexcept {
    return buffer_ >> (64 - count);
  }
  [[gnu::always_inline]] void drop(int count) noexcept { drop(count, count); }
  template <typename Entry>  // of either table
  [[gnu::always_inline]] void drop(Entry entry) noexcept {
    drop(entry.shift(), entry.length());
  }

  [[nodiscard]] std::uint64_t buffer() const noexcept { return buffer_; }

  /// Goes back by up to 56 bits, and refills.
  void go_back(int count) noexcept { go_to(position() - static_cast<std::uint64_t>(count)); }

 private:
  void go_to(std::uint64_t to) noexcept {
    next_ = data_ + to / 8;
    buffer_ = 0;
    count_ = 0;
    refill();
    drop(static_cast<int>(to % 8));
    refill();
  }

  [[gnu::always_inline]] void drop(int shift, int count) noexcept {
    buffer_ <<= shift;
    count_ -= count;
  }

  const std::uint8_t* data_;
  const std::uint8_t* next_;
  std::uint64_t bits_;
  std::uint64_t buffer_ = 0;
  int count_ = 0;
};

namespace {

/// Between two fillings, see SkipTable::longest_entry.
constexpr int look_ups = 3;

constexpr std::size_t most_lanes = std::tuple_size_v<ScanWalkers>;
/// Fewer are slower than one scan after the other.
constexpr std::size_t fewest_lanes = 3;

constexpr std::int64_t bits_taken = (1 << SkipTable::Entry::advance_shift) - 1;
constexpr std::int64_t block_end = SkipTable::most_coefficients << SkipTable::Entry::advance_shift;

/// Added to the progress behind a block, gives one in which bit `is_sound_end` is set unless the
/// last symbols led behind the block: 63 coefficients have been passed, or up to 62 and an end.
constexpr std::int64_t to_sound_end = 192 << SkipTable::Entry::advance_shift;
constexpr std::int64_t is_sound_end = 64 << SkipTable::Entry::advance_shift;

[[nodiscard, gnu::always_inline]] inline const SkipTable& table_of(
    const WalkState* state) noexcept {
  return *reinterpret_cast<const SkipTable*>(static_cast<std::uintptr_t>(*state));
}

/// At least 57 bits, and moves the lane on to them.
[[gnu::always_inline]] inline std::uint64_t next_bits(WalkLane& lane) noexcept {
  lane.position += static_cast<std::uint64_t>(lane.progress & bits_taken);
  lane.progress &= ~bits_taken;
  std::uint64_t bytes;
  std::memcpy(&bytes, lane.data + lane.position / 8, sizeof bytes);
  return __builtin_bswap64(little_endian(bytes)) << lane.position % 8;
}

/// One look-up. Clears `sound` where it leads out of a block.
[[gnu::always_inline]] inline void look_up(WalkLane& lane, std::uint64_t& bits,
                                           std::int64_t& sound) noexcept {
  const SkipTable::Entry entry = table_of(lane.state)[bits >> (64 - SkipTable::lookup_bits)];
  lane.state[ScanWalker::most_states] = bits;
  bits <<= entry.shift();
  const std::int64_t progress = lane.progress + entry.packed();
  sound &= progress + to_sound_end;
  // Not by conditions, which compilers turn into jumps.
  const std::int64_t all_if_within = (progress - block_end) >> 63;
  lane.state += 1 + all_if_within;
  lane.progress = progress & (all_if_within | bits_taken);
  asm("" : "+r"(sound));  // now: sums kept for later would crowd out what the next look-up needs
}

constexpr std::uint32_t block_size = 64;

/// Passes over the symbols that the next bits begin with. Whether the block has ended, or the
/// entry is of no use.
[[gnu::always_inline]] inline bool pass_symbols(ScanBitCursor& cursor, const SkipTable& table,
                                                SkipTable::Entry& entry,
                                                std::uint32_t& k) noexcept {
  entry = table[cursor.peek(SkipTable::lookup_bits)];
  cursor.drop(entry);
  k += entry.advance();
  return k >= block_size;
}

/// Whether a block may end at `k`: at its last coefficient, or by a symbol before.
[[gnu::always_inline]] inline bool is_end(std::uint32_t k) noexcept {
  return k == block_size || k - SkipTable::end_of_block < block_size;
}

/// What taking one symbol leads to.
struct OneSymbol {
  ScanBitCursor cursor;
  std::uint32_t k;
  bool is_sound;
};

/// Takes one symbol of any length in place of `entry`, which has been passed and led to `k`. Not
/// sound: a code that is none, and a value outside the block. By value, so that the caller's
/// cursor can stay in registers.
[[gnu::noinline]] OneSymbol pass_one(ScanBitCursor cursor, const SkipTable& table,
                                     SkipTable::Entry entry, std::uint32_t k) noexcept {
  cursor.go_back(entry.length());
  k -= entry.advance();
  const auto [length, symbol] =
      table.find(static_cast<std::uint32_t>(cursor.peek(HuffmanTable::longest_code)));
  if (length == 0) return {cursor, k, false};
  const int size = static_cast<int>(symbol & 15);
  const std::uint32_t run = symbol >> 4;
  cursor.drop(length);
  cursor.drop(size);
  cursor.refill();
  if (size == 0) return {cursor, run == HuffmanTable::zero_run ? k + run + 1 : block_size, true};
  k += run + 1;
  return {cursor, k, k <= block_size};
}

/// The value of the DC symbol that `bits` begin with.
[[gnu::always_inline]] inline std::int32_t dc_difference(const SkipTable& table,
                                                         std::uint64_t bits) noexcept {
  const SkipTable::Entry entry = table[bits >> (64 - SkipTable::lookup_bits)];
  HuffmanTable::Symbol found{};
  if (entry.advance() != SkipTable::escape) [[likely]] {
    found.symbol = entry.advance() - SkipTable::end_of_block;
    found.code_length = entry.length() - static_cast<int>(found.symbol);
  } else {
    found = table.find(static_cast<std::uint32_t>(bits >> (64 - HuffmanTable::longest_code)));
  }
  const auto size = static_cast<int>(found.symbol);
  const auto value = static_cast<std::int32_t>(bits << found.code_length >> 1 >> (63 - size));
  const std::int32_t half = 1 << size >> 1;
  return value + ((value - half) >> 31 & (1 - (1 << size)));  // as ScanReader::take_value
}

/// What stands behind the last look-up of a stretch: nothing leads on.
const SkipTable no_codes;

}  // namespace

void ScanWalker::set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  dc_tables_[number].build(codes, HuffmanUse::dc);
}

void ScanWalker::set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  ac_tables_[number].build(codes, HuffmanUse::ac);
}

bool ScanWalker::begin(Bytes file, Bytes input, const ScanGrid& grid,
                       std::span<const HuffmanDecoder::Block> blocks) noexcept {
  file_ = file;
  start_ = static_cast<std::size_t>(input.data() - file.data());
  grid_ = grid;
  points_ = reinterpret_cast<ScanPoint*>(memory_.reserve(grid.points() * sizeof(ScanPoint)));
  if (points_ == nullptr || !bytes_.read(input)) return false;
  block_count_ = blocks.size();
  for (std::size_t i = 0; i < block_count_; ++i) {
    const HuffmanDecoder::Block& block = blocks[i];
    blocks_[i] = {&dc_tables_[block.dc_table], &ac_tables_[block.ac_table], block.component};
  }
  WalkState* state = &states_[most_states - 1];
  *state = reinterpret_cast<WalkState>(&no_codes);
  for (std::size_t i = most_blocks / block_count_ * block_count_; i-- > 0;) {
    const Tables& tables = blocks_[i % block_count_];
    *--state = reinterpret_cast<WalkState>(tables.ac);
    *--state = reinterpret_cast<WalkState>(tables.dc);
  }
  predictions_ = {};
  position_ = noted_ = 0;
  note_point();
  return true;
}

/// Notes where the walk has come to.
void ScanWalker::note_point() noexcept {
  const std::size_t column = noted_ % grid_.points_per_row();
  points_[noted_++] = {8 * (start_ + bytes_.input_offset(position_ / 8)) + position_ % 8,
                       predictions_};
  left_ = noted_ == grid_.points() ? 0 : grid_.column(column + 1) - grid_.column(column);
}

[[gnu::always_inline]] inline bool ScanWalker::pass_block(ScanBitCursor& cursor,
                                                          const Tables& tables,
                                                          std::int32_t& prediction) noexcept {
  cursor.refill();
  const std::uint64_t bits = cursor.buffer();
  SkipTable::Entry entry = (*tables.dc)[cursor.peek(SkipTable::lookup_bits)];
  if (entry.advance() != SkipTable::escape) [[likely]] {
    cursor.drop(entry);
  } else {
    const auto [length, size] =
        tables.dc->find(static_cast<std::uint32_t>(cursor.peek(HuffmanTable::longest_code)));
    if (length == 0) return false;
    cursor.drop(length);
    cursor.drop(static_cast<int>(size));
    cursor.refill();
  }
  // Wraps around in damaged files, as it does in libjpeg.
  prediction =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(prediction) +
                                static_cast<std::uint32_t>(dc_difference(*tables.dc, bits)));

  const SkipTable& table = *tables.ac;
  std::uint32_t k = 1;
  bool ended = pass_symbols(cursor, table, entry, k) || pass_symbols(cursor, table, entry, k);
  for (;;) {
    while (!ended) {
      cursor.refill();
      ended = pass_symbols(cursor, table, entry, k) || pass_symbols(cursor, table, entry, k) ||
              pass_symbols(cursor, table, entry, k);
    }
    if (is_end(k)) [[likely]]
      return true;
    const OneSymbol one = pass_one(cursor, table, entry, k);
    cursor = one.cursor;
    k = one.k;
    if (!one.is_sound || k >= block_size) return one.is_sound;
    ended = false;
  }
}

/// False where a block is damaged, or bits are missing.
bool ScanWalker::pass_mcus(ScanBitCursor& out, std::size_t count) noexcept {
  ScanBitCursor cursor = out;
  bool sound = true;
  for (std::size_t mcu = 0; mcu < count && sound; ++mcu) {
    for (std::size_t i = 0; i < block_count_ && sound; ++i) {
      const Tables& tables = blocks_[i];
      sound = pass_block(cursor, tables, predictions_[tables.component]);
    }
    sound = sound && !cursor.overrun();
  }
  out = cursor;
  return sound;
}

Status ScanWalker::finish() noexcept {
  ScanBitCursor cursor(bytes_, position_);
  while (noted_ < grid_.points()) {
    if (!pass_mcus(cursor, left_)) {
      const bool is_cut = cursor.overrun() && std::ranges::all_of(rest(), [](auto byte) {
                            return byte == ScanReader::marker_start;
                          });
      return is_cut ? Status::truncated : Status::corrupt;
    }
    position_ = cursor.position();
    note_point();
  }
  return Status::ok;
}

WalkLane ScanWalker::lane() noexcept {
  return {bytes_.data(), 0, begin_stretch(), 0};
}

/// The state of its first look-up.
WalkState* ScanWalker::begin_stretch() noexcept {
  stretch_ = std::min(left_, most_blocks / block_count_);
  return &states_[most_states - 1 - 2 * block_count_ * stretch_];
}

/// Takes what has been found in a stretch that ends at `position`. False when there is none that
/// follows, or bits are missing.
bool ScanWalker::end_stretch(std::uint64_t position) noexcept {
  if (position > 8 * std::uint64_t{bytes_.size()}) return false;
  const WalkState* const first = stretch_end() - 2 * block_count_ * stretch_ + most_states;
  for (std::size_t block = 0; block < block_count_; ++block) {
    const SkipTable& table = *blocks_[block].dc;
    std::uint32_t sum = 0;
    for (std::size_t mcu = 0; mcu < stretch_; ++mcu) {
      const std::uint64_t bits = first[2 * (mcu * block_count_ + block)];
      sum += static_cast<std::uint32_t>(dc_difference(table, bits));
    }
    std::int32_t& prediction = predictions_[blocks_[block].component];
    prediction = static_cast<std::int32_t>(static_cast<std::uint32_t>(prediction) + sum);
  }
  position_ = position;
  left_ -= stretch_;
  if (left_ == 0) note_point();
  return left_ != 0;
}

/// Passes over one symbol, when `passed` coefficients of the block have been. Not so for a code
/// that is none, and for a value outside the block.
bool ScanWalker::pass_symbol(ScanBitCursor& cursor, WalkState*& state,
                             std::uint32_t& passed) const noexcept {
  cursor.refill();
  const auto [length, symbol] =
      table_of(state).find(static_cast<std::uint32_t>(cursor.peek(HuffmanTable::longest_code)));
  if (length == 0) return false;
  const int size = static_cast<int>(symbol & 15);
  const std::uint32_t run = symbol >> 4;
  const bool is_dc = (stretch_end() - state) % 2 == 0;
  state[most_states] = cursor.buffer();
  cursor.drop(length);
  cursor.drop(size);
  cursor.refill();
  passed += run + 1;
  if (is_dc || (size == 0 && run != HuffmanTable::zero_run)) {
    passed = SkipTable::most_coefficients;
  }
  if (passed < SkipTable::most_coefficients) return true;
  ++state;
  return std::exchange(passed, 0) == SkipTable::most_coefficients;
}

/// Repeats the look-ups from `before` on up to one that led out of a block, and goes on to the
/// block's end symbol by symbol. The lane as it is if none did.
WalkLane ScanWalker::stay_within_block(WalkLane lane, const WalkLane& before) const noexcept {
  WalkLane again = before;
  std::uint64_t bits = next_bits(again);
  for (int step = 0; step < look_ups; ++step) {
    const WalkLane last = again;
    std::int64_t sound = is_sound_end;
    look_up(again, bits, sound);
    if (again.progress < 0) return lane;
    if (sound != 0) continue;
    WalkState* state = last.state;
    ScanBitCursor cursor(bytes_, last.bit());
    for (std::uint32_t passed = last.passed(); state == last.state;) {
      if (!pass_symbol(cursor, state, passed)) return {};
    }
    return {lane.data, cursor.position(), state, 0};
  }
  return lane;
}

WalkLane ScanWalker::go_on(WalkLane lane, const WalkLane& before, bool is_sound) noexcept {
  if (!is_sound) lane = stay_within_block(lane, before);
  if (lane.data == nullptr || lane.progress >= 0) return lane;
  if (lane.state == stretch_end()) {
    if (!end_stretch(lane.bit())) return {};
    return {lane.data, position_, begin_stretch(), 0};
  }
  ScanBitCursor cursor(bytes_, lane.bit());
  std::uint32_t passed = lane.passed();
  if (!pass_symbol(cursor, lane.state, passed)) return {};
  lane.position = cursor.position();
  lane.progress = static_cast<std::int64_t>(passed << SkipTable::Entry::advance_shift);
  return lane;
}

namespace {

/// Goes on with all lanes until some of them have come to an end.
template <std::size_t... i>
[[gnu::always_inline]] inline void walk_until_end(std::span<WalkLane> lanes,
                                                  std::span<ScanWalker* const> walkers,
                                                  std::index_sequence<i...>) noexcept {
  std::array<WalkLane, sizeof...(i)> lane{lanes[i]...};
  bool ended = false;
  while (!ended) {
    std::array<std::uint64_t, sizeof...(i)> bits{next_bits(lane[i])...};
    ((lanes[i].position = lane[i].position, lanes[i].state = lane[i].state,
      lanes[i].progress = lane[i].progress),
     ...);
    std::int64_t sound = is_sound_end;
    for (int step = 0; step < look_ups; ++step) (look_up(lane[i], bits[i], sound), ...);
    if (sound != 0 && (lane[i].progress | ...) >= 0) [[likely]]
      continue;
    const auto go_on = [&](WalkLane& each, const WalkLane& before, ScanWalker& walker) {
      if (sound != 0 && each.progress >= 0) return;
      each = walker.go_on(each, before, sound != 0);
      ended = ended || each.data == nullptr;
    };
    (go_on(lane[i], lanes[i], *walkers[i]), ...);
  }
  ((lanes[i] = lane[i]), ...);
}

}  // namespace

void walk_scans(ScanWalkers& walkers, ScanSource& source) noexcept {
  std::array<WalkLane, most_lanes> lanes;
  std::array<ScanWalker*, most_lanes> walking;
  std::size_t count = 0;
  const auto begin = [&](std::size_t at) {
    const bool begun = source.next(static_cast<std::size_t>(walking[at] - walkers.data()));
    if (begun) lanes[at] = walking[at]->lane();
    return begun;
  };
  const auto end = [&](std::size_t at) {
    source.done(static_cast<std::size_t>(walking[at] - walkers.data()));
  };
  for (ScanWalker& walker : walkers) {
    walking[count] = &walker;
    if (!begin(count)) break;
    ++count;
  }
  for (std::size_t at = 0; count >= fewest_lanes; ++at) {
    if (at >= count) {
      if (count == 5) walk_until_end(lanes, walking, std::make_index_sequence<5>());
      if (count == 4) walk_until_end(lanes, walking, std::make_index_sequence<4>());
      if (count == 3) walk_until_end(lanes, walking, std::make_index_sequence<3>());
      at = 0;
    }
    while (at < count && lanes[at].data == nullptr) {
      end(at);
      if (begin(at)) continue;
      --count;
      lanes[at] = lanes[count];
      std::swap(walking[at], walking[count]);
    }
  }
  for (std::size_t at = 0; at < count; ++at) end(at);
}

}  // namespace fastio
