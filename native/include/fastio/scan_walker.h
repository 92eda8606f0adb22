/// Where the MCUs of baseline scans begin, found without decoding what is in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fastio/bytes.h"
#include "fastio/huffman.h"
#include "fastio/jump_table.h"
#include "fastio/scratch.h"
#include "fastio/skip_table.h"
#include "fastio/status.h"
#include "fastio/unstuffed.h"

namespace fastio {

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
