/// Antialiased resampling of 8-bit pixels, equal to Pillow's to the bit.
///
/// As there: weights in 22-bit fixed point, a horizontal pass into 8 bits, then a vertical.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/plan.h"
#include "fastio/scratch.h"
#include "fastio/unfilter.h"

namespace fastio {

/// Kernels. The numbers are part of the Python interface.
enum class Filter : std::int32_t {
  bilinear = 0,
  bicubic = 1,
  box = 2,
  lanczos = 3,
  hamming = 4,
  nearest = 5,
};

/// One axis: [start, start + size) of the input becomes `virtual_size` positions, of which
/// `count` from `first` on are wanted, last one first where `mirrored`. Nothing outside
/// [low, high), the whole pixels that the box touches, is read.
struct Axis {
  double start;
  double size;
  std::int32_t low;
  std::int32_t high;
  std::int32_t virtual_size;
  std::int32_t first;
  std::int32_t count;
  bool mirrored;
};

/// The weights of one axis. Not thread-safe: one per thread.
class Taps {
 public:
  static constexpr int precision = 22;  ///< bits behind the point of a weight

  /// Computes the weights; false when there is no memory.
  [[nodiscard]] bool prepare(const Axis& axis, Filter filter) noexcept;

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Weights for each position; those that are not needed are 0. Even.
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  /// Input positions that are read at all: [low, high).
  [[nodiscard]] std::size_t low() const noexcept { return low_; }
  [[nodiscard]] std::size_t high() const noexcept { return high_; }

  /// Of the i-th position wanted: first input position, how many, and their weights.
  [[nodiscard]] std::size_t start(std::size_t i) const noexcept { return starts_[i]; }
  [[nodiscard]] std::size_t length(std::size_t i) const noexcept { return lengths_[i]; }
  [[nodiscard]] const std::int32_t* weights(std::size_t i) const noexcept {
    return weights_ + i * most_;
  }

 private:
  [[nodiscard]] bool reserve(std::size_t count, std::size_t most) noexcept;
  void prepare_nearest(const Axis& axis) noexcept;
  void set_range() noexcept;

  Scratch memory_;
  Scratch kernel_;  // one position's weights before they are rounded
  std::size_t count_ = 0;
  std::size_t most_ = 0;
  std::size_t low_ = 0;
  std::size_t high_ = 0;
  std::uint32_t* starts_ = nullptr;
  std::uint32_t* lengths_ = nullptr;
  std::int32_t* weights_ = nullptr;
};

/// Pixels to read: `data` is the pixel (x, y) of the input, rows are `stride` bytes apart.
struct PixelView {
  const std::uint8_t* data;
  std::size_t stride;
};

/// Pixels to write, rows `stride` bytes apart.
struct PixelTarget {
  std::uint8_t* data;
  std::size_t stride;
};

/// Resamples one picture after another; keeps its memory. Not thread-safe: one per thread.
class Resizer {
 public:
  /// Bytes that must be readable behind the last pixel of a view.
  static constexpr std::size_t slack = 64;

  /// Prepares both axes; false when there is no memory.
  [[nodiscard]] bool prepare(const Axis& x, const Axis& y, Filter filter) noexcept;

  /// The part of the input that will be read; never empty.
  [[nodiscard]] Region region() const noexcept;

  /// Resamples. `in` views the region just named; out gets x.count times y.count pixels of 1,
  /// 3 or 4 channels and nothing else is written. False when there is no memory.
  [[nodiscard]] bool run(const PixelView& in, int channels, const PixelTarget& out,
                         SimdLevel level) noexcept;

 private:
  Taps x_;
  Taps y_;
  Scratch between_;  // after the horizontal pass
  Scratch packed_;   // weights as the SIMD kernels want them
};

}  // namespace fastio
