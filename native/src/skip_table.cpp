#include "fastio/skip_table.h"

#include <algorithm>

namespace fastio {

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

}  // namespace fastio
