/// Batches of masks: pictures whose numbers are classes, into the rows of an array as stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fastio/bytes.h"
#include "fastio/job.h"
#include "fastio/nearest.h"
#include "fastio/plan.h"
#include "fastio/probe.h"
#include "fastio/status.h"

namespace fastio {

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
};

/// A task that decodes PNGs and JPEGs; `unsupported` for others, which are Pillow's.
///
/// `bad_shape` where a mask has another size than its row or `sizes` say, leaves its box, has other
/// channels, or more bits than the row's numbers (colours of 16 bits always: Pillow has none).
/// What is decoded of a mask and what is not is told where its decoder is: see
/// PngDecoder::decode_numbers and JpegDecoder::decode_part.
[[nodiscard]] std::unique_ptr<Task> mask_task(MaskBatch batch) noexcept;

}  // namespace fastio
