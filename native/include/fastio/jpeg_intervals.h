/// Where the restart intervals of a JPEG lie: noted when it is packed.
///
/// What is noted is a run of std::uint32_t, little-endian:
///
///     word 0   tag and version; jump tables (jump_table.h) have another
///     word 1   noted_checksum of words 2 to the end, with the first place as the origin
///     word 2.. where intervals 8, 16, ... begin: the byte of the file behind the marker, inverted.
///              fastio 0.1 takes all words for places, and what lies outside of the file for
///              unknown
///
/// fastio 0.1.0 noted the places alone. These are not used: nothing tells that they are right.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/blob.h"
#include "fastio/bytes.h"

namespace fastio {

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
