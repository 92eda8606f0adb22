/// The bits of a scan, eight bytes at a time, for our Huffman decoders; the order of coefficients.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/bytes.h"
#include "core/status.h"
#include "jpeg/huffman.h"

namespace fastio {

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

/// The highest bit of each of eight bytes that is 0xFF. The first bit set is right; above it a
/// borrow may have set others.
[[gnu::always_inline]] constexpr std::uint64_t marker_starts(std::uint64_t bytes) noexcept {
  return (~bytes - 0x0101010101010101) & bytes & 0x8080808080808080;
}

/// Whether one of the first `count` (0 to 7) of eight bytes is 0xFF.
[[gnu::always_inline]] constexpr bool has_marker_start(std::uint64_t bytes, int count) noexcept {
  return (marker_starts(bytes) & ((std::uint64_t{1} << 8 * count) - 1)) != 0;
}

/// Bits of the input. Lives on the stack of whoever decodes, in registers, it is hoped: nothing
/// takes its address but what is inlined.
class ScanReader {
 public:
  static constexpr std::uint8_t marker_start = 0xFF;

  ScanReader(Bytes input, const ScanBits& bits) noexcept
      : bits_(bits), next_(input.data()), stop_(input.data() + input.size()) {}

  [[nodiscard]] const ScanBits& bits() const noexcept { return bits_; }
  [[nodiscard]] Bytes rest() const noexcept { return {next_, stop_}; }

  /// Whether bits have been used that the input does not have.
  [[nodiscard]] bool overrun() const noexcept { return bits_.count < bits_.padding; }

  /// Loads bits until there are at least 56; zeros where a marker or the end is reached.
  [[gnu::always_inline]] void refill() noexcept {
    std::uint64_t bytes;
    if (stop_ - next_ >= 8) [[likely]] {
      std::memcpy(&bytes, next_, sizeof bytes);
      bytes = little_endian(bytes);
      const int whole = (63 - bits_.count) >> 3;
      const bool is_stuffed = has_marker_start(bytes, whole);
      if (is_stuffed) [[unlikely]]
        bytes = without_stuffed_zero(bytes, whole);
      if (!is_stuffed || bytes != 0) [[likely]] {
        next_ += is_stuffed ? 1 : 0;
        // Below `count` the buffer may already hold bits of the next byte: the same ones.
        bits_.buffer |= __builtin_bswap64(bytes) >> bits_.count;
        next_ += whole;
        bits_.count |= 56;
        return;
      }
    }
    *this = refill_by_bytes(*this);
  }

  [[nodiscard, gnu::always_inline]] std::uint64_t peek(int count) const noexcept {
    return bits_.buffer >> (64 - count);
  }
  [[gnu::always_inline]] void drop(HuffmanTable::Entry entry) noexcept {
    bits_.buffer <<= entry.shift();
    bits_.count -= entry.length();
  }
  [[gnu::always_inline]] void drop(int count) noexcept {
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

  /// The next `count` bits, 0 to 56.
  [[nodiscard, gnu::always_inline]] std::uint64_t take_bits(int count) noexcept {
    const std::uint64_t bits = bits_.buffer >> 1 >> (63 - count);
    drop(count);
    return bits;
  }

  /// A value of `size` bits, 0 to 15: negative ones are sent less one, without a sign.
  [[nodiscard, gnu::always_inline]] std::int32_t take_value(int size) noexcept {
    const auto value = static_cast<std::int32_t>(bits_.buffer >> 1 >> (63 - size));
    drop(size);
    const std::int32_t half = 1 << size >> 1;
    return value + ((value - half) >> 31 & (1 - (1 << size)));
  }

 private:
  // By value both ways, so that the caller's can stay in registers.
  [[nodiscard]] static ScanReader refill_by_bytes(ScanReader reader) noexcept;
  /// Eight bytes of whose first `count` (1 to 7) one is 0xFF, without the stuffed zero behind it:
  /// seven of them, the last zero. 0 where that is not all that is to be done.
  [[nodiscard]] static std::uint64_t without_stuffed_zero(std::uint64_t bytes, int count) noexcept;
  [[nodiscard]] bool next_byte(std::uint8_t& byte) noexcept;

  ScanBits bits_;
  const std::uint8_t* next_;
  const std::uint8_t* stop_;
};

/// Moves `input` behind the next marker, which must be that of restart `number`, modulo 8. What
/// lies before it is no damage, as for libjpeg. `truncated` without a marker.
[[nodiscard]] Status pass_restart_marker(Bytes& input, std::size_t number) noexcept;

}  // namespace fastio
