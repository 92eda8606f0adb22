/// Antialiased resampling of 8-bit pixels, equal to Pillow's to the bit.
///
/// As there: weights in 22-bit fixed point, two passes with 8 bits between them. Their order
/// decides how values between the passes are rounded, see PassOrder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"
#include "core/simd.h"
#include "transform/plan.h"

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

/// Which of the two passes comes first.
enum class PassOrder : std::uint8_t {
  horizontal_first,  ///< always, as in Pillow before 13
  cheaper_first,     ///< the vertical one if the height shrinks by more than twice what the width
                     ///< does, as in Pillow since 13
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

/// The weights of two neighbouring taps, each in two halves: weight = high * 2048 + low. Sums of
/// 16-bit products by the halves, put together, are the exact sum.
struct TapPair {
  std::int16_t high[2];
  std::int16_t low[2];
};

/// The weights of one axis. Not thread-safe: one per thread.
class Taps {
 public:
  static constexpr int precision = 22;  ///< bits behind the point of a weight

  static constexpr int half_bits = 11;  ///< of a weight in a TapPair's `low`

  /// Computes the weights; false when there is no memory.
  [[nodiscard]] bool prepare(const Axis& axis, Filter filter) noexcept;

  /// Computes the pairs too; false when there is no memory.
  [[nodiscard]] bool pack() noexcept;

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Input positions that are read at all: [low, high).
  [[nodiscard]] std::size_t low() const noexcept { return low_; }
  [[nodiscard]] std::size_t high() const noexcept { return high_; }

  /// Of the i-th position wanted: first input position, how many, and their weights.
  [[nodiscard]] std::size_t start(std::size_t i) const noexcept { return starts_[i]; }
  [[nodiscard]] std::size_t length(std::size_t i) const noexcept { return lengths_[i]; }
  [[nodiscard]] const std::int32_t* weights(std::size_t i) const noexcept {
    return weights_ + i * most_;
  }

  /// The same as pairs: all positions have equally many, and those of all but a range shorter
  /// than that begin early enough to end within [low, high), or one position behind it.
  [[nodiscard]] std::size_t pair_count() const noexcept { return pair_count_; }
  [[nodiscard]] const std::uint32_t* pair_starts() const noexcept { return pair_starts_; }
  [[nodiscard]] const TapPair* pairs(std::size_t i) const noexcept {
    return pairs_ + i * pair_count_;
  }

 private:
  [[nodiscard]] bool reserve(std::size_t count, std::size_t most) noexcept;
  void store(std::size_t i, std::size_t start, std::span<const double> exact) noexcept;
  void prepare_nearest(const Axis& axis) noexcept;
  void set_range() noexcept;

  Scratch memory_;
  Scratch packed_;
  Scratch kernel_;  // one position's weights before they are rounded
  std::size_t count_ = 0;
  std::size_t most_ = 0;
  std::size_t longest_ = 0;
  std::size_t pair_count_ = 0;
  std::size_t low_ = 0;
  std::size_t high_ = 0;
  std::uint32_t* starts_ = nullptr;
  std::uint32_t* lengths_ = nullptr;
  std::int32_t* weights_ = nullptr;
  std::uint32_t* pair_starts_ = nullptr;
  TapPair* pairs_ = nullptr;
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
  [[nodiscard]] bool prepare(const Axis& x, const Axis& y, Filter filter, PassOrder order) noexcept;

  /// The part of the input that will be read; never empty.
  [[nodiscard]] Region region() const noexcept;

  /// Resamples. `in` views the region just named; out gets x.count times y.count pixels of 1,
  /// 3 or 4 channels and nothing else is written. False when there is no memory.
  [[nodiscard]] bool run(const PixelView& in, int channels, const PixelTarget& out,
                         SimdLevel level) noexcept;

 private:
  Taps x_;
  Taps y_;
  Scratch between_;  // after the first pass
  bool x_changes_ = false;
  bool y_changes_ = false;
  bool vertical_first_ = false;
};

// The two passes of resampling, for one instruction set (inside the core only).

/// `rows` rows, each from input positions taps.low() on, into taps.count() pixels.
using HorizontalPass = void (*)(const Taps& taps, int channels, const PixelView& in,
                                std::size_t rows, const PixelTarget& out) noexcept;

/// Rows of `bytes` bytes, from input row taps.low() on, into taps.count() rows.
using VerticalPass = void (*)(const Taps& taps, std::size_t bytes, const PixelView& in,
                              const PixelTarget& out) noexcept;

struct ResizePasses {
  HorizontalPass horizontal;
  VerticalPass vertical;
};

extern const ResizePasses scalar_passes;
// Those of vectors are for 3 and 4 channels, 1 channel as scalar_passes, and need Taps::pack.
#if defined(__x86_64__)
extern const ResizePasses avx2_passes;
extern const ResizePasses avx512_passes;
#elif defined(__aarch64__)
extern const ResizePasses neon_passes;
#endif

}  // namespace fastio
