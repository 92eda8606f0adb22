/// Where the restart intervals of a JPEG lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/blob.h"
#include "fastio/bytes.h"

namespace fastio {

/// Every eighth restart interval is known by its place: the marker before it is always RST7, and
/// the few in between are found by searching. More places gain nothing that could be measured.
inline constexpr std::size_t intervals_a_place = 8;

/// Adds to `out` where in `file` the restart intervals 8, 16, ... begin: the byte behind the
/// marker, as std::uint32_t. For sound files of one scan, as JpegWriter writes them; of others it
/// may find too few or none. False when there is no memory.
[[nodiscard]] bool find_intervals(Bytes file, Blob& out) noexcept;

/// The places of restart intervals that an index gives, in any order and of any value: each is
/// looked at before it is used.
class Intervals {
 public:
  /// Where to go on reading, and which interval begins there.
  struct Place {
    std::size_t interval;
    Bytes rest;  ///< of the file; empty where no place is known
  };

  Intervals() = default;
  /// `places` are std::uint32_t, aligned or not.
  explicit Intervals(Bytes places) noexcept : places_(places) {}

  /// As given: a table of points instead of places, perhaps (is_jump_table).
  [[nodiscard]] Bytes bytes() const noexcept { return places_; }

  /// The last known place up to interval `number`, if the right marker stands before it.
  [[nodiscard]] Place before(std::size_t number, Bytes file) const noexcept;

 private:
  Bytes places_;
};

}  // namespace fastio
