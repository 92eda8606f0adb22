// Huffman tables made for decoding.
#include <algorithm>

#include "fastio/huffman.h"

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

}  // namespace fastio
