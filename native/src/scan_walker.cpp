#include "fastio/scan_walker.h"

#include <algorithm>
#include <cstring>

#include "scan_reader.h"

namespace fastio {

/// A place in unstuffed bytes, and the bits that follow it. Lives in registers, as ScanReader; it
/// needs no checks, since zeros follow the bytes.
class ScanBitCursor {
 public:
  ScanBitCursor(const std::uint8_t* data, std::size_t size) noexcept
      : data_(data), next_(data), bits_(8 * std::uint64_t{size}) {}

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

  /// A value of `size` bits, 0 to 15, see ScanReader::take_value.
  [[nodiscard, gnu::always_inline]] std::int32_t take_value(int size) noexcept {
    const auto value = static_cast<std::int32_t>(buffer_ >> 1 >> (63 - size));
    drop(size);
    const std::int32_t half = 1 << size >> 1;
    return value + ((value - half) >> 31 & (1 - (1 << size)));
  }

  /// Goes back by up to 56 bits, and refills.
  void go_back(int count) noexcept {
    const std::uint64_t to = position() - static_cast<std::uint64_t>(count);
    next_ = data_ + to / 8;
    buffer_ = 0;
    count_ = 0;
    refill();
    drop(static_cast<int>(to % 8));
    refill();
  }

 private:
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

}  // namespace

void ScanWalker::set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  // As entries of whole coefficients, so that one look-up gives a difference and its length.
  dc_tables_[number].build(codes, HuffmanUse::ac);
}

void ScanWalker::set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  ac_tables_[number].build(codes);
}

void ScanWalker::begin(std::span<const HuffmanDecoder::Block> blocks) noexcept {
  block_count_ = blocks.size();
  for (std::size_t i = 0; i < block_count_; ++i) {
    const HuffmanDecoder::Block& block = blocks[i];
    blocks_[i] = {&dc_tables_[block.dc_table], &ac_tables_[block.ac_table], block.component};
  }
  predictions_ = {};
}

[[gnu::always_inline]] inline bool ScanWalker::pass_block(ScanBitCursor& cursor,
                                                          const Tables& tables,
                                                          std::int32_t& prediction) noexcept {
  cursor.refill();
  const HuffmanTable::Entry dc = (*tables.dc)[cursor.peek(HuffmanTable::lookup_bits)];
  std::int32_t difference = dc.value();
  if (dc.length() != 0) [[likely]] {
    cursor.drop(dc);
  } else {
    const auto [length, size] =
        tables.dc->find(static_cast<std::uint32_t>(cursor.peek(HuffmanTable::longest_code)));
    if (length == 0) return false;
    cursor.drop(length);
    difference = cursor.take_value(static_cast<int>(size));
    cursor.refill();
  }
  prediction = static_cast<std::int32_t>(static_cast<std::uint32_t>(prediction) +
                                         static_cast<std::uint32_t>(difference));

  const SkipTable& table = *tables.ac;
  SkipTable::Entry entry;
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

Status ScanWalker::note_points(Bytes file, Bytes& input, const ScanGrid& grid,
                               ScanPoint* points) noexcept {
  if (!bytes_.read(input)) return Status::no_memory;
  const auto start = static_cast<std::uint64_t>(input.data() - file.data());
  const Bytes rest = input.subspan(bytes_.input_size());
  ScanBitCursor cursor(bytes_.data(), bytes_.size());
  const auto point = [&]() -> ScanPoint {
    const std::uint64_t at = cursor.position();
    return {8 * (start + bytes_.input_offset(at / 8)) + at % 8, predictions_};
  };
  for (std::size_t row = 0; row < grid.rows; ++row) {
    for (std::size_t number = 0; number < grid.points_per_row(); ++number) {
      *points++ = point();
      if (pass_mcus(cursor, grid.column(number + 1) - grid.column(number))) continue;
      const bool is_cut = cursor.overrun() && std::ranges::all_of(rest, [](auto byte) {
                            return byte == ScanReader::marker_start;
                          });
      return is_cut ? Status::truncated : Status::corrupt;
    }
  }
  *points = point();
  input = rest;
  return Status::ok;
}

}  // namespace fastio
