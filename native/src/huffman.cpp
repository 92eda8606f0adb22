// The bits of a scan into coefficients.
#include "fastio/huffman.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fastio {

namespace {

constexpr std::uint8_t marker_start = 0xFF;
constexpr std::uint8_t first_restart_marker = 0xD0;

/// Where the k-th coefficient of a block lies. What leads behind the block goes to the last
/// one, which has not been written before: zero at the block's end, anything else is damage.
constexpr auto natural_order = [] {
  std::array<std::uint8_t, 64 + HuffmanTable::past_the_end> order{};
  order.fill(63);
  int row = 0;
  int column = 0;
  for (std::size_t k = 0; k < 64; ++k) {
    order[k] = static_cast<std::uint8_t>(8 * row + column);
    const bool up = (row + column) % 2 == 0;
    if (up ? column == 7 : row == 7) {
      ++(up ? row : column);
    } else if (up ? row == 0 : column == 0) {
      ++(up ? column : row);
    } else {
      row += up ? -1 : 1;
      column += up ? 1 : -1;
    }
  }
  return order;
}();

constexpr std::uint64_t little_endian(std::uint64_t value) noexcept {
  return std::endian::native == std::endian::little ? value : __builtin_bswap64(value);
}

/// Whether one of the first `count` (0 to 7) of eight bytes is 0xFF.
constexpr bool has_marker_start(std::uint64_t bytes, int count) noexcept {
  // The first bit set is right; above it a borrow may have set others.
  const std::uint64_t found = (~bytes - 0x0101010101010101) & bytes & 0x8080808080808080;
  return (found & ((std::uint64_t{1} << 8 * count) - 1)) != 0;
}

}  // namespace

/// Bits of the input. Lives on the stack of decode_mcu, in registers, it is hoped: nothing
/// takes its address but what is inlined.
class HuffmanDecoder::Reader {
 public:
  Reader(Bytes input, const Bits& bits) noexcept
      : bits_(bits), next_(input.data()), stop_(input.data() + input.size()) {}

  [[nodiscard]] const Bits& bits() const noexcept { return bits_; }
  [[nodiscard]] Bytes rest() const noexcept { return {next_, stop_}; }

  /// Whether bits have been used that the input does not have.
  [[nodiscard]] bool overrun() const noexcept { return bits_.count < bits_.padding; }

  /// Loads bits until there are at least 56; zeros where a marker or the end is reached.
  void refill() noexcept {
    std::uint64_t bytes;
    if (stop_ - next_ >= 8) [[likely]] {
      std::memcpy(&bytes, next_, sizeof bytes);
      bytes = little_endian(bytes);
      const int whole = (63 - bits_.count) >> 3;
      if (!has_marker_start(bytes, whole)) [[likely]] {
        // Below `count` the buffer may already hold bits of the next byte: the same ones.
        bits_.buffer |= __builtin_bswap64(bytes) >> bits_.count;
        next_ += whole;
        bits_.count |= 56;
        return;
      }
    }
    *this = refill_by_bytes(*this);
  }

  [[nodiscard]] std::uint64_t peek(int count) const noexcept {
    return bits_.buffer >> (64 - count);
  }
  void drop(HuffmanTable::Entry entry) noexcept {
    bits_.buffer <<= entry.shift();
    bits_.count -= entry.length();
  }
  void drop(int count) noexcept {
    bits_.buffer <<= count;
    bits_.count -= count;
  }

  /// The symbol that comes next; false when no code begins so. After refill only.
  [[nodiscard]] bool take_symbol(const HuffmanTable& table, HuffmanTable::Entry entry,
                                 std::uint32_t& symbol) noexcept {
    HuffmanTable::Symbol found{entry.code_length(), entry.symbol()};
    if (found.code_length == 0) {
      found = table.find(static_cast<std::uint32_t>(peek(HuffmanTable::longest_code)));
    }
    drop(found.code_length);
    symbol = found.symbol;
    return found.code_length != 0;
  }

  /// A value of `size` bits, 0 to 15: negative ones are sent less one, without a sign.
  [[nodiscard]] std::int32_t take_value(int size) noexcept {
    const auto value = static_cast<std::int32_t>(bits_.buffer >> 1 >> (63 - size));
    drop(size);
    const std::int32_t half = 1 << size >> 1;
    return value + ((value - half) >> 31 & (1 - (1 << size)));
  }

 private:
  // By value both ways, so that the caller's can stay in registers.
  [[nodiscard]] static Reader refill_by_bytes(Reader reader) noexcept;
  [[nodiscard]] bool next_byte(std::uint8_t& byte) noexcept;

  Bits bits_;
  const std::uint8_t* next_;
  const std::uint8_t* stop_;
};

/// False at a marker, where it stays, and at the end.
bool HuffmanDecoder::Reader::next_byte(std::uint8_t& byte) noexcept {
  if (next_ == stop_) return false;
  byte = *next_;
  if (byte == marker_start) {
    // A zero behind it says that it is data. After a repeated one libjpeg-turbo takes it for
    // data too, but leaves coefficients of a first attempt in the block: here it is damage.
    if (stop_ - next_ < 2 || next_[1] != 0) return false;
    ++next_;
  }
  ++next_;
  return true;
}

[[gnu::noinline]] auto HuffmanDecoder::Reader::refill_by_bytes(Reader reader) noexcept -> Reader {
  Bits& bits = reader.bits_;
  bits.buffer &= bits.count == 0 ? 0 : ~std::uint64_t{0} << (64 - bits.count);
  for (; bits.count < 56; bits.count += 8) {
    std::uint8_t byte = 0;
    if (!reader.next_byte(byte)) {
      byte = 0;
      bits.padding += 8;
    }
    bits.buffer |= std::uint64_t{byte} << (56 - bits.count);
  }
  return reader;
}

void HuffmanDecoder::set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  dc_tables_[number].build(codes, true);
}

void HuffmanDecoder::set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept {
  ac_tables_[number].build(codes, false);
}

void HuffmanDecoder::begin(std::span<const Block> blocks, std::uint32_t restart_interval) noexcept {
  block_count_ = blocks.size();
  for (std::size_t i = 0; i < block_count_; ++i) {
    const Block& block = blocks[i];
    blocks_[i] = {&dc_tables_[block.dc_table], &ac_tables_[block.ac_table], block.component};
  }
  predictions_ = {};
  bits_ = {};
  restart_interval_ = until_restart_ = restart_interval;
  interval_ = read_up_to_ = 0;
  mcus_per_row_ = 0;
  passing_over_ = false;
  places_ = Intervals();
}

void HuffmanDecoder::pass_over_all_but(const Wanted& wanted, std::size_t mcus_per_row) noexcept {
  wanted_ = wanted;
  mcus_per_row_ = mcus_per_row;
  passing_over_ = restart_interval_ != 0 && !interval_is_wanted();
}

void HuffmanDecoder::jump_by(const Intervals& places, Bytes file) noexcept {
  places_ = places;
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
  until_restart_ = restart_interval_;
  passing_over_ = !interval_is_wanted();
  if (passing_over_) return Status::ok;
  predictions_ = {};
  bits_ = {};
  if (interval_ - read_up_to_ > 1) jump(input);
  while (read_up_to_ < interval_) {
    const Status status = restart(input);
    if (status != Status::ok) return status;
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

/// Finds the next marker; what lies before it is no damage for libjpeg either.
Status HuffmanDecoder::restart(Bytes& input) noexcept {
  const std::uint8_t* next = input.data();
  const std::uint8_t* const stop = next + input.size();
  std::uint8_t marker = 0;
  while (marker == 0) {
    const auto left = static_cast<std::size_t>(stop - next);
    next = static_cast<const std::uint8_t*>(std::memchr(next, marker_start, left));
    if (next == nullptr) return Status::truncated;
    next = std::find_if(next, stop, [](auto byte) { return byte != marker_start; });
    if (next == stop) return Status::truncated;
    marker = *next++;
  }
  if (marker != first_restart_marker + read_up_to_ % 8) return Status::corrupt;
  input = {next, stop};
  ++read_up_to_;
  return Status::ok;
}

/// False for a code that is none and for a run that leaves the block.
[[gnu::always_inline]] inline bool HuffmanDecoder::decode_block(Reader& reader,
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
  if (restart_interval_ != 0) {
    if (until_restart_ == 0) {
      const Status status = next_interval(input);
      if (status != Status::ok) return status;
    }
    --until_restart_;
    if (passing_over_) return Status::ok;
  }
  Reader reader(input, bits_);
  bool sound = true;
  for (std::size_t i = 0; i < block_count_ && sound; ++i) {
    const Tables& tables = blocks_[i];
    std::int16_t* const block = blocks == nullptr ? discarded_ : *blocks[i];
    sound = decode_block(reader, tables, predictions_[tables.component], block);
  }
  if (reader.overrun()) {
    const Bytes rest = reader.rest();
    const bool ended = std::ranges::all_of(rest, [](auto byte) { return byte == marker_start; });
    return ended ? Status::truncated : Status::corrupt;
  }
  bits_ = reader.bits();
  input = reader.rest();
  return sound ? Status::ok : Status::corrupt;
}

}  // namespace fastio
