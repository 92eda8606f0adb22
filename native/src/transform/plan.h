/// What is done to one picture on its way into a row of a batch, in integers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace fastio {

/// Crop the picture to the box; resample that to the virtual size (equal sizes: nothing is
/// resampled); of the result take the window; put it at `place` into the row, whose rest is
/// filled; mirror the whole row as `flip` says: 1, left and right; 2, top and bottom; 3, both.
///
/// Resampling reads nothing outside the box, and the window only selects: what lies in it
/// is what it would be if all were computed. The members are the columns of Python's plan.
struct Plan {
  std::int32_t box_x, box_y, box_w, box_h;
  std::int32_t virtual_w, virtual_h;
  std::int32_t window_x, window_y, window_w, window_h;
  std::int32_t place_x, place_y;
  std::int32_t flip;

  [[nodiscard]] bool flips_x() const noexcept { return (flip & 1) != 0; }
  [[nodiscard]] bool flips_y() const noexcept { return (flip & 2) != 0; }
  /// Whether nothing of the picture is seen: the row is filled.
  [[nodiscard]] bool is_empty() const noexcept { return window_w == 0 || window_h == 0; }
  [[nodiscard]] bool resamples() const noexcept { return box_w != virtual_w || box_h != virtual_h; }
};
static_assert(sizeof(Plan) == 13 * sizeof(std::int32_t));

/// No side of a picture, real or virtual, is longer.
inline constexpr std::int32_t longest_side = 1 << 20;

/// No limit to the pixels of a picture.
inline constexpr std::size_t any_pixels = std::numeric_limits<std::size_t>::max();

/// What is wrong with a plan for rows of `height` x `width`, in words that end a message;
/// nullptr when nothing is. A plan that passes cannot reach outside the row or overflow.
[[nodiscard]] const char* plan_fault(const Plan& plan, std::size_t height,
                                     std::size_t width) noexcept;

/// A rectangle of a picture.
struct Region {
  std::size_t x, y, width, height;

  [[nodiscard]] bool is_inside(std::size_t picture_width,
                               std::size_t picture_height) const noexcept {
    return x + width <= picture_width && y + height <= picture_height;
  }
};

/// The plan's box.
[[nodiscard]] Region box_of(const Plan& plan) noexcept;

}  // namespace fastio
