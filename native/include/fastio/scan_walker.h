/// Where the MCUs of baseline scans begin, found without decoding what is in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fastio/bytes.h"
#include "fastio/huffman.h"
#include "fastio/jump_table.h"
#include "fastio/skip_table.h"
#include "fastio/status.h"
#include "fastio/unstuffed.h"

namespace fastio {

class ScanBitCursor;

/// Walks one scan after another: faster than HuffmanDecoder decodes them, and sees the same damage.
/// Not thread-safe: one per thread.
class ScanWalker {
 public:
  /// See HuffmanDecoder. A table must be set before a scan that uses it.
  void set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept;
  void set_ac_table(std::size_t number, const HuffmanCodes& codes) noexcept;

  /// The blocks of an MCU of the scan that comes; see HuffmanDecoder::begin.
  void begin(std::span<const HuffmanDecoder::Block> blocks) noexcept;

  /// Writes all points of `grid` to `points`, of the scan without restart markers whose data are
  /// `input`, the rest of `file`; moves `input` to the marker behind them, or the end.
  ///
  /// Status as HuffmanDecoder::decode_mcu's where that is called for all MCUs; `no_memory`.
  [[nodiscard]] Status note_points(Bytes file, Bytes& input, const ScanGrid& grid,
                                   ScanPoint* points) noexcept;

 private:
  struct Tables {
    const HuffmanTable* dc;
    const SkipTable* ac;
    std::uint8_t component;
  };

  [[nodiscard]] static bool pass_block(ScanBitCursor& cursor, const Tables& tables,
                                       std::int32_t& prediction) noexcept;
  [[nodiscard]] bool pass_mcus(ScanBitCursor& cursor, std::size_t count) noexcept;

  std::array<HuffmanTable, HuffmanDecoder::most_tables> dc_tables_;
  std::array<SkipTable, HuffmanDecoder::most_tables> ac_tables_;
  std::array<Tables, HuffmanDecoder::most_blocks> blocks_{};
  std::size_t block_count_ = 0;
  std::array<std::int32_t, 4> predictions_{};
  UnstuffedBytes bytes_;
};

}  // namespace fastio
