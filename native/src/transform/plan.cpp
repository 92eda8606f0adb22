#include "transform/plan.h"

namespace fastio {
namespace {

/// Whether [start, start + size) lies in [0, limit); all of any value.
bool lies_in(std::int64_t start, std::int64_t size, std::int64_t limit) noexcept {
  return start >= 0 && size >= 0 && start + size <= limit;
}

bool is_side(std::int32_t size) noexcept {
  return size >= 1 && size <= longest_side;
}

}  // namespace

const char* plan_fault(const Plan& plan, std::size_t height, std::size_t width) noexcept {
  if (plan.box_w < 1 || plan.box_h < 1) return "its box is empty";
  if (!lies_in(plan.box_x, plan.box_w, longest_side) ||
      !lies_in(plan.box_y, plan.box_h, longest_side)) {
    return "its box begins before the picture or ends beyond 1048576 pixels";
  }
  if (!is_side(plan.virtual_w) || !is_side(plan.virtual_h)) {
    return "its virtual size is not within 1 to 1048576 pixels";
  }
  if (!lies_in(plan.window_x, plan.window_w, plan.virtual_w) ||
      !lies_in(plan.window_y, plan.window_h, plan.virtual_h)) {
    return "its window leaves the virtual picture";
  }
  if (!lies_in(plan.place_x, plan.window_w, static_cast<std::int64_t>(width)) ||
      !lies_in(plan.place_y, plan.window_h, static_cast<std::int64_t>(height))) {
    return "its window, as placed, leaves the row of the batch";
  }
  if (plan.flip < 0 || plan.flip > 3) return "its flip is not within 0 to 3";
  return nullptr;
}

Region box_of(const Plan& plan) noexcept {
  return {static_cast<std::size_t>(plan.box_x), static_cast<std::size_t>(plan.box_y),
          static_cast<std::size_t>(plan.box_w), static_cast<std::size_t>(plan.box_h)};
}

}  // namespace fastio
