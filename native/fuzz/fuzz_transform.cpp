// libFuzzer target: plans on hostile pictures. A picture that decodes as a whole must give the
// same through a plan as its pixels do.
//
// The first bytes are the recipe of the plan, the rest is the file.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "pictures/decode.h"
#include "pictures/probe.h"
#include "pictures/worker.h"
#include "transform/transform.h"

namespace {

using fastio::Bytes;
using fastio::Status;

constexpr std::size_t recipe_bytes = 21;
constexpr std::int64_t most_pixels = 1 << 16;

/// Numbers from the recipe, one byte each.
class Recipe {
 public:
  explicit Recipe(Bytes bytes) noexcept : bytes_(bytes) {}

  /// 0 to limit - 1.
  [[nodiscard]] std::int32_t below(std::int32_t limit) noexcept {
    const std::uint8_t byte = bytes_[next_++ % bytes_.size()];
    return limit <= 0 ? 0 : byte * 257 % limit;
  }

 private:
  Bytes bytes_;
  std::size_t next_ = 0;
};

/// A row of the batch and what goes into it.
struct Case {
  fastio::Plan plan;
  fastio::TransformOptions options;
  std::size_t height;
  std::size_t width;
  int channels;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return height * width * static_cast<std::size_t>(channels);
  }
};

Case case_of(Recipe recipe, const fastio::ImageInfo& info) noexcept {
  Case made{};
  fastio::Plan& plan = made.plan;
  plan.box_w = 1 + recipe.below(info.width);
  plan.box_h = 1 + recipe.below(info.height);
  // Now and then one pixel too far.
  plan.box_x = recipe.below(info.width - plan.box_w + 1 + (recipe.below(16) == 0));
  plan.box_y = recipe.below(info.height - plan.box_h + 1);
  const bool same = recipe.below(4) == 0;
  plan.virtual_w = same ? plan.box_w : 1 + recipe.below(100);
  plan.virtual_h = same ? plan.box_h : 1 + recipe.below(100);
  plan.window_w = std::min(recipe.below(plan.virtual_w + 1), 120);
  plan.window_h = std::min(recipe.below(plan.virtual_h + 1), 120);
  plan.window_x = recipe.below(plan.virtual_w - plan.window_w + 1);
  plan.window_y = recipe.below(plan.virtual_h - plan.window_h + 1);
  plan.place_x = recipe.below(3);
  plan.place_y = recipe.below(3);
  plan.flip = recipe.below(2);
  constexpr int channel_counts[] = {1, 3, 4};
  made.channels = channel_counts[recipe.below(3)];
  made.options = {static_cast<fastio::Filter>(recipe.below(6)),
                  {1, 2, 3, 4},
                  recipe.below(2) == 1,
                  made.channels != 4 && recipe.below(2) == 1,
                  recipe.below(4) == 0};
  made.width = static_cast<std::size_t>(std::max(plan.place_x + plan.window_w, 1));
  made.height = static_cast<std::size_t>(std::max(plan.place_y + plan.window_h, 1));
  return made;
}

/// A batch of one.
fastio::TransformBatch batch_of(Bytes value, const Case& made, std::uint8_t* out,
                                std::int32_t* status) {
  auto spans = std::make_unique<Bytes[]>(1);
  spans[0] = value;
  auto plans = std::make_unique<fastio::Plan[]>(1);
  plans[0] = made.plan;
  return {std::move(spans),
          nullptr,
          std::move(plans),
          made.options,
          {{out, made.height, made.width, made.channels}, nullptr, status},
          {}};
}

void compare_with_whole(fastio::Worker& worker, Bytes file, const fastio::ImageInfo& info,
                        const Case& made, const std::uint8_t* found, Status status) {
  const auto height = static_cast<std::size_t>(info.height);
  const auto width = static_cast<std::size_t>(info.width);
  fastio::Picture whole{nullptr, height, width, made.options.grey ? 3 : made.channels};
  const std::size_t size = height * whole.row_bytes();
  const auto pixels = std::make_unique<std::uint8_t[]>(size);
  whole.data = pixels.get();
  if (shrink_of(made.plan, made.options) > 1) return;  // other pixels, by design
  if (decode_picture(worker, file, whole, true) != Status::ok) return;
  const auto expected = std::make_unique<std::uint8_t[]>(made.bytes());
  std::int32_t raw_status = -1;
  const auto task = fastio::transform_raw_task(
      batch_of({pixels.get(), size}, made, expected.get(), &raw_status), {height, width});
  task->run(worker, 0, 1);
  if (raw_status != static_cast<std::int32_t>(status)) std::abort();
  if (status == Status::ok && std::memcmp(expected.get(), found, made.bytes()) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fastio::Worker worker;  // kept, as a thread of the pool keeps it: state must not leak over
  if (size <= recipe_bytes) return 0;
  const Bytes input(data, size);
  const Bytes file = input.subspan(recipe_bytes);
  const fastio::ImageInfo info = fastio::probe_image(file);
  if (info.status != Status::ok || std::int64_t{info.height} * info.width > most_pixels) return 0;
  const Case made = case_of(Recipe(input.first(recipe_bytes)), info);
  if (fastio::plan_fault(made.plan, made.height, made.width) != nullptr) std::abort();
  const auto out = std::make_unique<std::uint8_t[]>(made.bytes());
  std::int32_t status = -1;
  const auto task = fastio::transform_task(batch_of(file, made, out.get(), &status));
  task->run(worker, 0, 1);
  compare_with_whole(worker, file, info, made, out.get(), static_cast<Status>(status));
  return 0;
}
