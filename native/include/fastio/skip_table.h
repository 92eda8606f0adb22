/// How far the next bits of a scan lead within a block, several AC symbols at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fastio/huffman.h"

namespace fastio {

/// A table of codes made for passing over coefficients; kept until other codes come.
class SkipTable {
 public:
  static constexpr int lookup_bits = 11;
  /// Bits that an entry takes at most: three entries and a look-up fit into 56 bits.
  static constexpr int longest_entry = 18;
  /// What an entry that ends a block adds to the coefficients before its end. See also
  /// to_sound_end in src/scan_walker.cpp.
  static constexpr std::uint32_t end_of_block = 257;
  /// The advance of an entry whose first symbol does not fit, or is none.
  static constexpr std::uint32_t escape = 512;
  /// The AC coefficients of a block: no entry leads further without an end of block.
  static constexpr std::uint32_t most_coefficients = 63;

  /// All symbols whose codes fit into the next `lookup_bits` one after the other, up to an end of
  /// block; the value of the last one may lie beyond them. With their values they take `length`
  /// bits, and lead `advance` coefficients on. Of DC codes: one symbol, whose advance is
  /// `end_of_block` and the size of its value.
  class Entry {
   public:
    static constexpr int advance_shift = 6;

    Entry() = default;
    constexpr Entry(int length, std::uint32_t advance) noexcept
        : packed_(static_cast<std::int16_t>(advance << advance_shift |
                                            static_cast<std::uint32_t>(length))) {}

    [[nodiscard]] int length() const noexcept { return packed_ & ((1 << advance_shift) - 1); }
    /// `length` for a shift, see HuffmanTable::Entry::shift.
    [[nodiscard]] int shift() const noexcept { return packed_ & 63; }
    [[nodiscard]] std::uint32_t advance() const noexcept {
      return static_cast<std::uint16_t>(packed_) >> advance_shift;
    }
    /// Length and advance in one number, for sums of both: negative for an escape.
    [[nodiscard]] std::int64_t packed() const noexcept { return packed_; }
    /// Both, one after the other.
    [[nodiscard]] Entry then(Entry next) const noexcept {
      Entry sum;
      sum.packed_ = static_cast<std::int16_t>(packed_ + next.packed_);
      return sum;
    }

   private:
    std::int16_t packed_ = 0;
  };

  /// Of no codes.
  SkipTable() noexcept { fill_level(lookup_bits); }

  /// See HuffmanTable::build; `use` is `dc` or `ac`.
  void build(const HuffmanCodes& codes, HuffmanUse use) noexcept;

  /// Those for all values of the next `lookup_bits`.
  [[nodiscard]] const Entry* entries() const noexcept {
    return &entries_[std::size_t{1} << lookup_bits];
  }
  [[nodiscard]] Entry operator[](std::uint64_t bits) const noexcept { return entries()[bits]; }

  /// The one symbol that the next 16 bits begin with, however long its code.
  [[nodiscard]] HuffmanTable::Symbol find(std::uint32_t next16) const noexcept;

 private:
  void fill_level(int bits) noexcept;
  void fill(int bits, std::uint32_t code, int length, std::uint8_t symbol) noexcept;

  /// What follows from `n` known bits, at 2^n and behind it.
  std::array<Entry, std::size_t{2} << lookup_bits> entries_{};
  std::array<std::uint8_t, 16> counts_{};
  std::array<std::uint8_t, 256> symbols_{};
  HuffmanUse use_ = HuffmanUse::ac;
};

}  // namespace fastio
