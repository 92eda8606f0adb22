/// Resampling of masks: every pixel of the result is one of the picture, chosen as torch's
/// interpolate(mode="nearest") chooses it.
///
/// Of `size` pixels, position i of `virtual_size` gets floor(i * (size / virtual_size)), in single
/// precision. Pillow's nearest, which Filter::nearest is, takes the pixel in the middle instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/pixels.h"
#include "fastio/plan.h"
#include "fastio/scratch.h"

namespace fastio {

/// One row of a batch of masks: height x width x channels numbers of 1 or 2 bytes, or channels x
/// height x width with `planar`. Aligned for the numbers, owned by the caller.
struct NumberRow {
  std::uint8_t* data;
  std::size_t height;
  std::size_t width;
  std::size_t channels;  ///< 1 to 4
  std::size_t number_bytes;
  bool planar;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return height * width * channels * number_bytes;
  }
};

/// Runs one plan after another; keeps its memory. Not thread-safe: one per thread.
///
/// `begin` says what part of the picture is needed, `finish` gets it and fills the row.
class NearestPicker {
 public:
  /// False when there is no memory. The plan has passed plan_fault and is not empty.
  [[nodiscard]] bool begin(const Plan& plan) noexcept;

  /// The part of the picture that is needed.
  [[nodiscard]] const Region& region() const noexcept { return region_; }

  /// Fills the row from the region, with `fill` around the window. `in` has the row's channels,
  /// and numbers that are not longer than the row's.
  void finish(const NumberView& in, std::uint16_t fill, const NumberRow& out) const noexcept;

 private:
  Plan plan_{};
  Region region_{};
  Scratch memory_;
  const std::uint32_t* columns_ = nullptr;  // of the region, one for each pixel of the window
  const std::uint32_t* lines_ = nullptr;
};

/// A row that shows nothing of its mask.
void fill_numbers(std::uint16_t fill, const NumberRow& out) noexcept;

}  // namespace fastio
