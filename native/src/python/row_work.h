/// What fills the rows of batches, whoever owns these rows.
#pragma once

#include <utility>

#include "python/module.h"
#include "transform/colours.h"

namespace fastio::python {

/// Neighbouring samples of a chunk, and the rows that they go to; one of these for each view.
struct RowPart {
  std::size_t first, count;
  std::uint8_t* out;                   ///< row behind row, in C order
  std::span<const std::size_t> shape;  ///< of a row
  std::size_t row_bytes;
  std::int32_t* status;
  const std::int64_t* places = nullptr;  ///< the line of `out` where each row begins, and the last
                                         ///< ends; nullptr: as high as `shape` says
};

/// Height and width of what the plan of a sample fills: a canvas of its program's, or its row.
inline std::pair<std::size_t, std::size_t> first_size(const ColourPrograms& programs,
                                                      std::size_t sample, std::size_t height,
                                                      std::size_t width) {
  const ColourProgram program = programs.of(sample);
  if (!begins_with_canvas(program)) return {height, width};
  const Canvas canvas = canvas_of(program.steps[0]);
  return {canvas.height, canvas.width};
}

/// The samples of a chunk and how each becomes a row, or one row in each of several `views`; see
/// `plain_rows`, `transformed_rows` and `view_rows`.
class RowWork {
 public:
  RowWork(Spans spans, bool verify, std::size_t views = 1)
      : views(views), spans_(std::move(spans)), checksums_(spans_.checksums(verify)) {
    expect_length("shard", spans_.shard.size(), size());
    expect_length("sizes", spans_.sizes.size(), size());
    (void)checked(checksums_, size());
  }
  RowWork(const RowWork&) = delete;
  RowWork& operator=(const RowWork&) = delete;
  virtual ~RowWork() = default;

  [[nodiscard]] std::size_t size() const { return spans_.size(); }

  /// A task that fills these rows, those of each view, and how it is cut up for so many
  /// `threads`. Rows, status and this object must outlive it. Throws where something does not fit.
  [[nodiscard]] virtual std::pair<std::unique_ptr<fastio::Task>, Cut> task(
      std::span<const RowPart> parts, std::size_t threads) const = 0;

  [[nodiscard]] const Spans& spans() const { return spans_; }

  const std::size_t views;

 protected:
  [[nodiscard]] const std::uint32_t* checksums(const RowPart& part) const {
    return checksums_ ? checksums_->data() + part.first : nullptr;
  }

 private:
  const Spans spans_;
  const Checksums checksums_;
};

}  // namespace fastio::python
