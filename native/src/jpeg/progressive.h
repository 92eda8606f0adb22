/// The entropy coding of progressive JPEG: scans that fill blocks of coefficients bit by bit.
///
/// Knows nothing of libjpeg, whose own decoder it replaces (pipeline.h). A mask says
/// which coefficients of a block are not zero: what refines them costs nothing in a block
/// without any, and is read at once in the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"
#include "core/simd.h"
#include "core/status.h"
#include "jpeg/huffman.h"

namespace fastio {

struct AcBand;

/// Decodes the scans of one picture after another. Not thread-safe: one per thread.
class ProgressiveDecoder {
 public:
  static constexpr std::size_t most_components = 4;

  /// How many blocks of a component there is memory for.
  struct Size {
    std::size_t blocks_a_row, rows;
  };

  /// What a scan sends: coefficients `first` to `last` (0 to 63, both included; `first` 0 goes
  /// with `last` 0, anything else with one component), their bits from `low` up (at most 13). With
  /// `refines`, their bit `low` only.
  struct Scan {
    std::uint32_t first, last;
    std::uint32_t low;
    bool refines;
    std::uint32_t restart_interval;  ///< in MCUs; 0: none
  };

  /// A component of a scan: which of the picture's (below most_components), how many blocks an
  /// MCU has of it in each direction, and the table of its DC.
  struct Component {
    std::size_t number;
    std::size_t mcu_width, mcu_height;
    std::size_t dc_table;
  };

  /// The rows of blocks that a component has in a row of MCUs. The first is number `first_row`.
  struct Rows {
    Coefficients* const* blocks;
    std::size_t first_row;
  };

  explicit ProgressiveDecoder(SimdLevel level = simd_level()) noexcept;

  /// Begins a picture whose blocks are all zero. False without memory.
  [[nodiscard]] bool begin_picture(std::span<const Size> components) noexcept;

  /// Tables of the scan that comes, as far as it needs them; `number` < 4. See HuffmanTable::build.
  void set_dc_table(std::size_t number, const HuffmanCodes& codes) noexcept;
  void set_ac_table(const HuffmanCodes& codes) noexcept;

  /// Begins a scan of these components (1 to 4).
  void begin_scan(const Scan& scan, std::span<const Component> components) noexcept;

  /// Decodes a row of `mcus` MCUs and moves `input` on, never past a marker but a restart marker.
  /// `rows` has an entry a component.
  ///
  /// `corrupt` where a code is none, a run leaves its block, bits are missing before a marker or
  /// the restart marker is not the one expected; `truncated` where `input` ends first. Then the
  /// blocks are unspecified, and the picture must not be continued.
  [[nodiscard]] Status decode_row(Bytes& input, std::span<const Rows> rows,
                                  std::size_t mcus) noexcept;

 private:
  using CoefficientMask = std::uint64_t;  ///< which are not zero, in zigzag order
  using RefineBlocks = bool (*)(ScanReader&, const AcBand&, Coefficients*, CoefficientMask*,
                                std::size_t, std::uint32_t&);

  [[nodiscard]] bool decode_dc(ScanReader& reader, std::span<const Rows> rows, std::size_t first,
                               std::size_t stop) noexcept;
  [[nodiscard]] bool decode_dc(ScanReader& reader, std::size_t component,
                               std::int16_t* block) noexcept;
  [[nodiscard]] bool decode_ac(ScanReader& reader, const Rows& row, std::size_t first,
                               std::size_t stop) noexcept;
  [[nodiscard]] Status restart(ScanReader& reader) noexcept;

  const RefineBlocks refine_;
  std::array<HuffmanTable, HuffmanDecoder::most_tables> dc_tables_;
  HuffmanTable ac_table_;
  Scratch mask_memory_;
  std::array<CoefficientMask*, most_components> masks_{};  ///< of components, row by row
  std::array<Size, most_components> sizes_{};
  Scan scan_{};
  std::array<Component, most_components> components_{};
  std::array<std::int32_t, most_components> predictions_{};
  std::uint32_t ended_blocks_ = 0;  ///< how many have nothing new, from the next one on
  std::uint32_t until_restart_ = 0;
  std::size_t restarts_ = 0;
  ScanBits bits_;
};

}  // namespace fastio
