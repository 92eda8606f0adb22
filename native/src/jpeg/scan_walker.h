/// Where the MCUs of baseline scans begin, found without decoding what is in them; the bytes of a
/// scan without those that are stuffed, and a table of several AC symbols at once, which it needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"
#include "core/status.h"
#include "jpeg/huffman.h"
#include "jpeg/jump_table.h"

namespace fastio {

/// The entropy-coded bytes of one scan after another, the zero behind each 0xFF left out.
/// Not thread-safe: one per thread.
class UnstuffedBytes {
 public:
  /// Zeros that follow the bytes in memory.
  static constexpr std::size_t slack = 25 << 10;

  /// Copies `input` up to the first marker, which 0xFF with anything but a zero behind it is, or
  /// the end. False when there is no memory.
  [[nodiscard]] bool read(Bytes input) noexcept;

  [[nodiscard]] const std::uint8_t* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// How many bytes of the input they were.
  [[nodiscard]] std::size_t input_size() const noexcept { return size_ + removed_count_; }

  /// Where byte `number` (up to `size`) was in the input: behind the zero, if one was left out
  /// before it. Must be asked for in ascending order.
  [[nodiscard]] std::size_t input_offset(std::size_t number) noexcept {
    while (passed_ < removed_count_ && removed_[passed_] <= number) ++passed_;
    return number + passed_;
  }

 private:
  Scratch memory_;
  Scratch removed_memory_;
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t* removed_ = nullptr;  ///< before which bytes zeros were left out
  std::size_t removed_count_ = 0;
  std::size_t passed_ = 0;  ///< how many of them lie before the byte last asked for
};

// How far the next bits of a scan lead within a block, several AC symbols at once.

/// A table of codes made for passing over coefficients; kept until other codes come.
class SkipTable {
 public:
  static constexpr int lookup_bits = 11;
  /// Bits that an entry takes at most: three entries and a look-up fit into 56 bits.
  static constexpr int longest_entry = 18;
  /// What an entry that ends a block adds to the coefficients before its end. See also
  /// to_sound_end in scan_walker.cpp.
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

// Where the MCUs of baseline scans begin, found without decoding what is in them.

class ScanBitCursor;

/// Of an array of look-ups: the table (as a number), and `most_states` further on the bits that
/// stood before the last look-up made there.
using WalkState = std::uint64_t;

/// A place in a scan, in registers while several scans are walked in one loop.
struct WalkLane {
  const std::uint8_t* data = nullptr;  ///< null where there is nothing to be walked in a loop
  std::uint64_t position = 0;          ///< a bit of them
  WalkState* state = nullptr;          ///< of the next look-up
  std::int64_t progress =
      0;  ///< as Entry::packed: bits behind `position`, coefficients of the block

  /// Behind the look-ups made.
  [[nodiscard]] std::uint64_t bit() const noexcept {
    constexpr std::int64_t bits_taken = (1 << SkipTable::Entry::advance_shift) - 1;
    return position + static_cast<std::uint64_t>(progress & bits_taken);
  }
  /// Coefficients of the block passed before an escape, if there was one.
  [[nodiscard]] std::uint32_t passed() const noexcept {
    return static_cast<std::uint32_t>(progress >> SkipTable::Entry::advance_shift) %
           SkipTable::escape;
  }
};

/// Walks one scan after another: faster than HuffmanDecoder decodes them, and sees the same damage.
/// Not thread-safe: one per thread.
class ScanWalker {
 public:
  /// See HuffmanDecoder. A table must be set before a scan that uses it.
  void set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept;
  void set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept;

  /// Begins at the scan without restart markers whose data are `input`, the rest of `file`, and
  /// whose MCUs have these blocks, see HuffmanDecoder::begin. All points of `grid` will be noted.
  /// The tables and `file` must stay. False when there is no memory.
  [[nodiscard]] bool begin(Bytes file, Bytes input, const ScanGrid& grid,
                           std::span<const HuffmanDecoder::Block> blocks) noexcept;

  /// Walks what is left of the scan. Status as HuffmanDecoder::decode_mcu's where that is called
  /// for all MCUs.
  [[nodiscard]] Status finish() noexcept;

  /// When finish() was `ok`: the points; and the input behind the scan, a marker or the end.
  [[nodiscard]] std::span<const ScanPoint> points() const noexcept {
    return {points_, grid_.points()};
  }
  [[nodiscard]] Bytes rest() const noexcept { return file_.subspan(start_ + bytes_.input_size()); }
  [[nodiscard]] Bytes file() const noexcept { return file_; }
  [[nodiscard]] const ScanGrid& grid() const noexcept { return grid_; }

  /// For walk_scans: the place where it begins.
  [[nodiscard]] WalkLane lane() noexcept;
  /// How many look-ups there are between the MCUs where it asks what has been found.
  static constexpr std::size_t most_states = 193;

  /// Where it goes on behind an escape, or when one of the last look-ups, from `before` on, may
  /// have led out of a block (not `is_sound`). Without data where it cannot: at the end, and at
  /// what finish() has to judge.
  [[nodiscard]] WalkLane go_on(WalkLane lane, const WalkLane& before, bool is_sound) noexcept;

 private:
  struct Tables {
    const SkipTable* dc;
    const SkipTable* ac;
    std::uint8_t component;
  };
  /// Blocks that a lane passes over without asking where bits end.
  static constexpr std::size_t most_blocks = most_states / 2;

  [[nodiscard]] static bool pass_block(ScanBitCursor& cursor, const Tables& tables,
                                       std::int32_t& prediction) noexcept;
  [[nodiscard]] bool pass_mcus(ScanBitCursor& cursor, std::size_t count) noexcept;
  void note_point() noexcept;
  [[nodiscard]] WalkState* begin_stretch() noexcept;
  /// The look-up behind a stretch.
  [[nodiscard]] const WalkState* stretch_end() const noexcept { return &states_[most_states - 1]; }
  [[nodiscard]] bool end_stretch(std::uint64_t position) noexcept;
  [[nodiscard]] bool pass_symbol(ScanBitCursor& cursor, WalkState*& state,
                                 std::uint32_t& passed) const noexcept;
  [[nodiscard]] WalkLane stay_within_block(WalkLane lane, const WalkLane& before) const noexcept;

  std::array<SkipTable, HuffmanDecoder::most_tables> dc_tables_;
  std::array<SkipTable, HuffmanDecoder::most_tables> ac_tables_;
  std::array<Tables, HuffmanDecoder::most_blocks> blocks_{};
  std::size_t block_count_ = 0;
  Bytes file_;
  std::size_t start_ = 0;  ///< where the scan's bytes begin in the file
  UnstuffedBytes bytes_;
  ScanGrid grid_{};
  Scratch memory_;
  ScanPoint* points_ = nullptr;
  std::size_t noted_ = 0;                      ///< how many points
  std::size_t left_ = 0;                       ///< MCUs before the next one
  std::uint64_t position_ = 0;                 ///< a bit of `bytes_` between two MCUs...
  std::array<std::int32_t, 4> predictions_{};  ///< ... and what is known there

  /// The look-ups of a stretch of MCUs, DC and AC by turns, up to the last one; it begins where it
  /// must to end there.
  std::array<WalkState, 2 * most_states> states_{};
  std::size_t stretch_ = 0;  ///< MCUs
};

/// Where ScanWalkers::walk gets scans from.
class ScanSource {
 public:
  ScanSource() = default;
  ScanSource(const ScanSource&) = delete;
  ScanSource& operator=(const ScanSource&) = delete;
  virtual ~ScanSource() = default;

  /// Lets the walker of this number begin the next scan; false when there is none.
  [[nodiscard]] virtual bool next(std::size_t number) noexcept = 0;
  /// The walker has come to the end of its scan, or to damage: finish() says which.
  virtual void done(std::size_t number) noexcept = 0;
};

/// As many walkers as are worth while in one loop: a look-up waits for the one before it, but not
/// for those in other scans.
using ScanWalkers = std::array<ScanWalker, 5>;

/// Walks all scans of `source`.
void walk_scans(ScanWalkers& walkers, ScanSource& source) noexcept;

}  // namespace fastio
