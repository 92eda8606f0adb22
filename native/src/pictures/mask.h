/// Batches of masks: pictures whose numbers are classes, into the rows of an array as stored.
///
/// Every pixel of a resampled mask is one of the picture, chosen as torch's
/// interpolate(mode="nearest") chooses it: of `size` pixels, position i of `virtual_size` gets
/// floor(i * (size / virtual_size)), in single precision. Pillow's nearest, which Filter::nearest
/// is, takes the pixel in the middle instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "pictures/pixels.h"
#include "pictures/probe.h"
#include "transform/colours.h"
#include "transform/plan.h"

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

/// Moves the numbers of finished rows by flips and warps; keeps its memory. Not thread-safe: one
/// per thread.
class NumberMover {
 public:
  /// The program has passed move_fault; a warp's first fill is the number outside. False when there
  /// is no memory.
  [[nodiscard]] bool run(const ColourProgram& program, const NumberRow& row) noexcept;

 private:
  Scratch copy_;
  Scratch places_;
  Scratch floats_;
};

/// A row that shows nothing of its mask.
void fill_numbers(std::uint16_t fill, const NumberRow& out) noexcept;

// Batches of masks: pictures whose numbers are classes, into the rows of an array as stored.

/// What the header of a mask says of its numbers: the channels of a pixel (1 for a palette, whose
/// numbers are indices), and the bits of each (of JPEGs 8).
struct MaskForm {
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  int bits;
  ImageKind kind;
};

/// Reads the header of a PNG or JPEG; `unsupported` for other kinds.
[[nodiscard]] Status read_mask_form(Bytes file, MaskForm& form) noexcept;

/// The size of a picture that a mask lies over.
struct MaskSize {
  std::int32_t height;
  std::int32_t width;
};
static_assert(sizeof(MaskSize) == 2 * sizeof(std::int32_t));

/// Where a batch goes. `first` is the first row; rows follow without gaps.
struct MaskRows {
  NumberRow first;
  std::uint16_t fill;              ///< around windows
  const std::uint32_t* checksums;  ///< nullptr: not checked, but the CRCs inside PNGs are
  std::int32_t* status;
};

/// A batch: `spans[i]` goes into row i by `plans[i]`, which plan_fault has passed; without plans,
/// whole. `sizes[i]`, if there are any, is the size that mask i must have.
struct MaskBatch {
  std::unique_ptr<Bytes[]> spans;
  std::unique_ptr<Plan[]> plans;
  std::unique_ptr<MaskSize[]> sizes;
  MaskRows rows;
  std::size_t max_pixels = any_pixels;
  ColourPrograms moves{};  ///< of the finished rows
};

/// A task that decodes PNGs and JPEGs; `unsupported` for others, which are Pillow's.
///
/// `bad_shape` where a mask has another size than its row or `sizes` say, leaves its box, has other
/// channels, or more bits than the row's numbers (colours of 16 bits always: Pillow has none).
/// What is decoded of a mask and what is not is told where its decoder is: see
/// PngDecoder::decode_numbers and JpegDecoder::decode_part.
[[nodiscard]] std::unique_ptr<Task> mask_task(MaskBatch batch) noexcept;

}  // namespace fastio
