/// Where MCUs of a JPEG without restart markers begin: noted when it is packed, so that a decoder
/// can start in the middle of the scan.
///
/// A table is a run of std::uint32_t, little-endian:
///
///     word 0   tag and version; places of restart intervals (below) have another
///     word 1   noted_checksum of words 2 to the end, with word 3 as the origin: where it differs,
///              the table is another file's, or damaged
///     word 2   spacing (7 bits, lowest), then five Rice parameters of 5 bits: lengths, DC 0 to 3
///     word 3   byte of the file where the scan's data begin
///     word 4.. Rice codes, from the highest bit down: for each point but the first, in order, how
///              many bits lie between it and the point before, then the DC predictions; each as
///              the difference from the point above it, of the first row from the point before it
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"

namespace fastio {

/// A place between two MCUs, and what a decoder knows there.
struct ScanPoint {
  std::uint64_t bit = 0;  ///< of the file; of bits left over none: the byte behind a stuffed zero
  std::array<std::int32_t, 4> dc{};  ///< predictions; zero where there is no such component

  bool operator==(const ScanPoint&) const = default;
};

/// The MCUs of a scan, and before which of them there are points: in every row the same, nearly
/// `spacing` MCUs apart, the first before the row's first MCU.
struct ScanGrid {
  std::size_t columns, rows, components;
  std::size_t spacing;  ///< 1 to most_spacing

  static constexpr std::size_t most_spacing = 127;

  [[nodiscard]] std::size_t points_per_row() const noexcept {
    const std::size_t rounded = (columns + spacing / 2) / spacing;
    return rounded == 0 ? 1 : rounded;
  }
  /// Before which MCU of a row point `number` lies; `columns` for the one behind the last.
  [[nodiscard]] std::size_t column(std::size_t number) const noexcept {
    return number * columns / points_per_row();
  }
  /// All points, with one behind the last MCU.
  [[nodiscard]] std::size_t points() const noexcept { return rows * points_per_row() + 1; }
};

/// CRC-32 of `words` from the second on, of the file's size, of 32 bytes from byte `origin` of the
/// file, and of its last 32: what tells one file from another.
[[nodiscard]] std::uint32_t noted_checksum(Bytes words, Bytes file, std::size_t origin) noexcept;

/// Adds the table of `points`, all those of `grid`, to `out`. False when there is no memory.
[[nodiscard]] bool write_jump_table(std::span<const ScanPoint> points, const ScanGrid& grid,
                                    Bytes file, Blob& out) noexcept;

/// Whether `words` are a table by their tag, rather than places of restart intervals.
[[nodiscard]] bool is_jump_table(Bytes words) noexcept;

/// A table read. Not thread-safe: one per thread.
class JumpTable {
 public:
  /// Reads what `words` say of `file`, whose scan has this grid but for the spacing, up to the
  /// first point of row `last_row + 1`. False, and without points, where they are not a table of
  /// this file or damaged. That the points are true is not known: they may be forged.
  [[nodiscard]] bool read(Bytes words, Bytes file, const ScanGrid& grid,
                          std::size_t last_row) noexcept;

  [[nodiscard]] const ScanGrid& grid() const noexcept { return grid_; }

  /// Point `number` of a row, up to points_per_row(): then the first of the next row.
  [[nodiscard]] const ScanPoint& at(std::size_t row, std::size_t number) const noexcept {
    return points_[row * per_row_ + number];
  }

 private:
  ScanGrid grid_{};
  std::size_t per_row_ = 0;
  Scratch memory_;
  ScanPoint* points_ = nullptr;
};

// Where the restart intervals of a JPEG lie: noted when it is packed.
//
// What is noted is a run of std::uint32_t, little-endian:
//
//     word 0   tag and version; jump tables have another
//     word 1   noted_checksum of words 2 to the end, with the first place as the origin
//     word 2.. where intervals 8, 16, ... begin: the byte of the file behind the marker, inverted.
//              fastio 0.1 takes all words for places, and what lies outside of the file for
//              unknown
//
// fastio 0.1.0 noted the places alone. These are not used: nothing tells that they are right.

/// Every eighth restart interval is known by its place: the marker before it is always RST7, and
/// the few in between are found by searching. More places gain nothing that could be measured.
inline constexpr std::size_t intervals_a_place = 8;

/// Adds to `out` where in `file` restart intervals begin; nothing where there are fewer than eight
/// behind the first. For sound files of one scan, as JpegWriter writes them; of others it may find
/// too few. False when there is no memory.
[[nodiscard]] bool find_intervals(Bytes file, Blob& out) noexcept;

/// What an index notes of where decoding may start in a JPEG: places of restart intervals, or
/// another table (is_jump_table). They may be damaged, or another file's.
class Intervals {
 public:
  /// Where to go on reading, and which interval begins there.
  struct Place {
    std::size_t interval;
    Bytes rest;  ///< of the file; empty where no place is known
  };

  Intervals() = default;
  /// `words` are std::uint32_t, aligned or not.
  explicit Intervals(Bytes words) noexcept : words_(words) {}

  /// As given.
  [[nodiscard]] Bytes bytes() const noexcept { return words_; }

  /// Whether they are places of `file`, by their tag and checksum.
  [[nodiscard]] bool are_places_of(Bytes file) const noexcept;

  /// The last known place up to interval `number`, of words that are places of `file`.
  [[nodiscard]] Place before(std::size_t number, Bytes file) const noexcept;

 private:
  Bytes words_;
};

}  // namespace fastio
