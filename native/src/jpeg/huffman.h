/// The entropy coding of baseline JPEG: Huffman codes into blocks of coefficients.
///
/// Knows nothing of libjpeg, whose own decoder it replaces (pipeline.h). One table
/// look-up gives run, value and length of a coefficient at once wherever code and value take
/// `lookup_bits` together, and bits are loaded eight bytes at a time. Where a second place is known
/// from which to decode (the next row by a jump table, the next restart interval by its marker),
/// two MCUs are decoded at once: what decoding waits for is the length of each code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"
#include "core/status.h"
#include "jpeg/jump_table.h"

namespace fastio {

/// The 64 coefficients of a block, row by row, not dequantised.
using Coefficients = std::int16_t[64];

/// A Huffman table as DHT gives it: how many codes of 1 to 16 bits, and what they stand for.
struct HuffmanCodes {
  std::span<const std::uint8_t, 16> counts;
  std::span<const std::uint8_t, 256> symbols;  ///< the first sum(counts) count
};

/// What the symbols of a table stand for. Entries of `dc` are symbols; those of `ac` whole
/// coefficients, where they fit; so are those of `progressive_ac`, but a symbol where a run of
/// ended blocks begins.
enum class HuffmanUse : std::uint8_t { dc, ac, progressive_ac };

/// A table made for decoding; kept until other codes come.
class HuffmanTable {
 public:
  static constexpr int lookup_bits = 11;
  static constexpr int longest_code = 16;
  /// What an entry that ends a block skips: from everywhere to behind it.
  static constexpr std::uint32_t past_the_end = 64;
  /// The run of an AC symbol without a value that passes 16 zeros.
  static constexpr std::uint32_t zero_run = 15;

  /// What the next bits begin with. Either a whole coefficient (`length` is not 0): bits to
  /// drop, zeros to skip, value. Or a symbol and the length of its code, which is 0 when the
  /// code is longer than `lookup_bits`: for DC, whose values are large, and for AC where code
  /// and value do not fit.
  class Entry {
   public:
    Entry() = default;
    static Entry coefficient(int length, std::uint32_t skip, int value) noexcept;
    static Entry symbol(int code_length, std::uint8_t symbol) noexcept;

    [[nodiscard]] int length() const noexcept { return static_cast<int>(packed_ & 0xFF); }
    /// `length` for a shift, which looks at six bits anyway: nothing stands between the look-up
    /// and the shift that the next look-up waits for.
    [[nodiscard]] int shift() const noexcept { return static_cast<int>(packed_ & 63); }
    [[nodiscard]] std::uint32_t skip() const noexcept { return packed_ >> 8 & 0xFF; }
    [[nodiscard]] std::int16_t value() const noexcept {
      return static_cast<std::int16_t>(packed_ >> 16);
    }
    [[nodiscard]] int code_length() const noexcept { return static_cast<int>(packed_ >> 16); }
    [[nodiscard]] std::uint32_t symbol() const noexcept { return skip(); }

   private:
    explicit Entry(std::uint32_t packed) noexcept : packed_(packed) {}
    std::uint32_t packed_ = 0;
  };

  struct Symbol {
    int code_length;  ///< 0: no such code
    std::uint32_t symbol;
  };

  /// `codes` must be a valid prefix code without the code of ones only, as libjpeg ensures.
  /// DC symbols are sizes of values, at most 15; AC symbols are run and size. Codes that are
  /// those of the last call, for the same use, cost a comparison.
  void build(const HuffmanCodes& codes, HuffmanUse use) noexcept;

  [[nodiscard]] Entry operator[](std::uint64_t index) const noexcept { return entries_[index]; }

  /// The symbol that the next 16 bits begin with, however long its code.
  [[nodiscard]] Symbol find(std::uint32_t next16) const noexcept;

 private:
  [[nodiscard]] bool is_built_from(const HuffmanCodes& codes, HuffmanUse use) const noexcept;
  void fill(std::uint32_t code, int length, std::uint8_t symbol) noexcept;

  std::array<Entry, 1 << lookup_bits> entries_{};
  std::array<std::uint32_t, longest_code + 1> limits_{};  ///< first code too large for a length
  std::array<std::uint32_t, longest_code + 1> firsts_{};  ///< position of the first symbol...
  std::array<std::uint32_t, longest_code + 1> codes_{};   ///< ... and its code
  std::array<std::uint8_t, 16> counts_{};
  std::array<std::uint8_t, 256> symbols_{};
  HuffmanUse use_ = HuffmanUse::ac;
};

/// Bits that have been read of a scan, but not used.
struct ScanBits {
  std::uint64_t buffer = 0;  ///< the next bits, from the top down
  int count = 0;             ///< how many are valid
  int padding = 0;           ///< how many zeros were put behind the end, of all times
};

/// The DC value before the next block of each component.
using HuffmanPredictions = std::array<std::int32_t, 4>;

/// A block of an MCU: its component, and the tables of that.
struct HuffmanBlock {
  const HuffmanTable* dc;
  const HuffmanTable* ac;
  std::uint8_t component;
};

class ScanReader;
struct HuffmanLane;

/// Decodes an MCU to `blocks`, all zero (nullptr: to `discarded`, which may hold anything), and one
/// of another lane to the blocks that stand side by side at `ahead`, all zero. False for a code
/// that is none and for a run that leaves its block.
using DecodeTwoMcus = bool (*)(std::span<const HuffmanBlock> mcu, HuffmanLane& lane,
                               Coefficients* const* blocks, std::int16_t* discarded,
                               HuffmanLane& other, std::int16_t* ahead) noexcept;

/// Decodes the MCUs of one scan after another. Not thread-safe: one per thread.
class HuffmanDecoder {
 public:
  static constexpr std::size_t most_blocks = 10;  ///< of an MCU, says the standard
  static constexpr std::size_t most_tables = 4;

  HuffmanDecoder() noexcept;

  /// Which component a block of the MCU belongs to, and its tables.
  struct Block {
    std::uint8_t component;
    std::uint8_t dc_table;
    std::uint8_t ac_table;
  };

  /// The tables of the scan that comes; see HuffmanTable::build. `number` < most_tables.
  void set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept;
  void set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept;

  /// Begins a scan of `mcu_count` MCUs that have these blocks (at most most_blocks, components and
  /// tables below 4) and whose restart markers stand after `restart_interval` MCUs each (0: none).
  void begin(std::span<const Block> blocks, std::size_t mcu_count,
             std::uint32_t restart_interval) noexcept;

  /// The MCUs whose values matter, in rows and columns of MCUs, both ends included.
  struct Wanted {
    std::size_t first_row, last_row, first_column, last_column;
  };

  /// From now to the next `begin`, restart intervals without a wanted MCU are passed over:
  /// their blocks stay zero and damage within them is not seen.
  void pass_over_all_but(const Wanted& wanted, std::size_t mcus_per_row) noexcept;

  /// Behind what is passed over, goes on where `places` say that the interval begins in `file`;
  /// searches for its marker where they are not places of this file, or damaged. Up to the next
  /// `begin`; both must stay. `decode_mcu` must be given the rest of `file`.
  void jump_by(const Intervals& places, Bytes file) noexcept;

  /// From now to the next `begin`, decodes of each row that is asked for with blocks only the
  /// wanted columns, from the last point before them on: all other blocks stay zero. `table` has
  /// the points up to the last wanted row; both must stay. Every point that decoding comes by must
  /// agree, the first one behind a start always is: `corrupt` otherwise. `input` is what
  /// decode_mcu would be given now. False, without effect, if the scan does not begin where the
  /// table says, has restart markers or more than one MCU before it was decoded.
  [[nodiscard]] bool jump_by(const JumpTable& table, const Wanted& wanted, Bytes file,
                             Bytes input) noexcept;

  /// Where the next MCU begins, if its bits have neither been passed over nor been read already
  /// with the row or interval before: `input` is the rest of `file` as decode_mcu left it.
  [[nodiscard]] ScanPoint point(Bytes file, Bytes input) const noexcept;

  /// Decodes the next MCU and moves `input` on, never past a marker but a restart marker.
  ///
  /// `blocks` points to one block for each of the MCU, all zero; nullptr throws the values
  /// away. `corrupt` where a code is none, a run leaves its block, bits are missing before a
  /// marker or the restart marker is not the one expected; `truncated` where `input` ends
  /// first. Then the blocks are unspecified and the scan must not be continued.
  [[nodiscard]] Status decode_mcu(Bytes& input, Coefficients* const* blocks) noexcept;

 private:
  /// Where decoding stands, beside the input.
  struct Lane {
    ScanBits bits;
    HuffmanPredictions predictions{};
  };

  /// What is done to the MCUs up to the next event.
  enum class Mode : std::uint8_t {
    pass_over,
    decode,
    decode_two,  ///< each with one of the row or interval that comes next
    hand_out,    ///< they have been decoded so
  };

  [[nodiscard]] Status next_interval(Bytes& input) noexcept;
  [[nodiscard]] Status find_interval(Bytes& input, std::size_t from, std::size_t to) const noexcept;
  void look_for_next_interval(Bytes input) noexcept;
  [[nodiscard]] bool is_wanted(std::size_t interval) const noexcept;
  [[nodiscard]] std::size_t mcus_of(std::size_t interval) const noexcept;
  [[nodiscard]] Status next_stretch(Bytes& input, bool is_wanted) noexcept;
  void look_at_next_row() noexcept;
  [[nodiscard]] bool enter(const ScanPoint& point, Bytes& input, Lane& lane) const noexcept;
  [[nodiscard]] bool agrees(const Lane& lane, Bytes input, std::size_t row) const noexcept;
  [[nodiscard]] static ScanPoint point_of(const Lane& lane, Bytes file, Bytes input) noexcept;
  void decode_ahead(std::size_t number, std::size_t mcus) noexcept;
  [[nodiscard]] bool is_decoded(std::size_t number) const noexcept;
  [[nodiscard]] Status decode(Bytes& input, Coefficients* const* blocks) noexcept;
  [[nodiscard]] bool decode_two(Bytes& input, Coefficients* const* blocks) noexcept;
  void hand_out(Bytes& input, Coefficients* const* blocks) noexcept;

  DecodeTwoMcus decode_two_mcus_;
  std::array<HuffmanTable, most_tables> dc_tables_;
  std::array<HuffmanTable, most_tables> ac_tables_;
  std::array<HuffmanBlock, most_blocks> blocks_{};
  std::size_t block_count_ = 0;
  std::size_t mcu_count_ = 0;
  Lane lane_;
  Mode mode_ = Mode::decode;
  std::uint32_t restart_interval_ = 0;
  std::size_t until_event_ = 0;  ///< MCUs before the next interval, or stretch of a row, begins
  std::size_t interval_ = 0;     ///< the one that the next MCU belongs to
  std::size_t read_up_to_ = 0;   ///< the one that the input stands in
  Wanted wanted_{};
  std::size_t mcus_per_row_ = 0;  ///< 0: all are wanted
  Intervals places_;
  Bytes file_;
  const JumpTable* table_ = nullptr;
  std::size_t first_point_ = 0;  ///< of each row: where decoding starts
  std::size_t stop_column_ = 0;  ///< where it ends
  std::size_t row_ = 0;          ///< of the stretch under way
  std::size_t column_ = 0;       ///< where that ends
  std::size_t next_point_ = 0;   ///< the one at or behind its end

  // The row or interval that comes next, decoded with the one before it.
  Lane ahead_;
  Bytes ahead_input_;
  std::size_t ahead_number_ = 0;
  std::size_t ahead_mcus_ = 0;  ///< 0: none is
  std::size_t ahead_done_ = 0;  ///< MCUs decoded; where they are handed out, those handed out
  Scratch ahead_memory_;
  std::int16_t* ahead_blocks_ = nullptr;

  Coefficients discarded_{};
};

}  // namespace fastio
