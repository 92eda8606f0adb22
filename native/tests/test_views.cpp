// Views of a picture: the rows that each plan gives alone, of one decoding, and nothing beside
// them.
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "jpeg_file.h"
#include "pictures/worker.h"
#include "transform/transform.h"

namespace {

using fastio::Plan;
using Pixels = std::vector<std::uint8_t>;

constexpr int width = 93, height = 71;

std::mt19937 generator(2);

std::int32_t between(std::int32_t first, std::int32_t last) {
  return std::uniform_int_distribution<std::int32_t>(first, last)(generator);
}

/// One view of one picture, and memory of just its size.
struct View {
  Plan plan;
  std::size_t rows, columns;
  int channels;
  bool planar;
  fastio::Filter filter = fastio::Filter::bilinear;

  [[nodiscard]] Pixels memory() const {
    return Pixels(rows * columns * static_cast<std::size_t>(channels), 0xAA);
  }

  [[nodiscard]] fastio::TransformBatch batch(const File& file, Pixels& out,
                                             std::int32_t* status) const {
    auto spans = std::make_unique<fastio::Bytes[]>(1);
    spans[0] = {file.data(), file.size()};
    auto plans = std::make_unique<Plan[]>(1);
    plans[0] = plan;
    const fastio::TransformOptions options{filter, {9, 8, 7, 6}, planar, false, false};
    return {std::move(spans),
            nullptr,
            std::move(plans),
            options,
            {{out.data(), rows, columns, channels}, nullptr, status},
            {}};
  }
};

View any_view() {
  const std::int32_t w = between(1, width), h = between(1, height);
  const std::int32_t x = between(0, width - w), y = between(0, height - h);
  const bool resamples = between(0, 1) == 1;
  const std::int32_t virtual_w = resamples ? between(1, 60) : w;
  const std::int32_t virtual_h = resamples ? between(1, 60) : h;
  const bool is_empty = between(0, 9) == 0;
  const std::int32_t window_w = is_empty ? 0 : between(1, virtual_w);
  const std::int32_t window_h = is_empty ? 0 : between(1, virtual_h);
  const std::int32_t edge = between(0, 3);
  const Plan plan{x,
                  y,
                  w,
                  h,
                  virtual_w,
                  virtual_h,
                  between(0, virtual_w - window_w),
                  between(0, virtual_h - window_h),
                  window_w,
                  window_h,
                  edge,
                  edge,
                  between(0, 1)};
  return {plan,
          static_cast<std::size_t>(window_h + 2 * edge) + is_empty,
          static_cast<std::size_t>(window_w + 2 * edge) + is_empty,
          between(0, 3) == 0 ? 1 : 3,
          between(0, 1) == 1,
          static_cast<fastio::Filter>(between(0, 5))};
}

void expect_equal(fastio::Worker& worker, const File& file, const std::vector<View>& views) {
  std::vector<Pixels> together, alone;
  std::vector<fastio::TransformBatch> batches;
  std::int32_t status = -1, expected = 0;
  for (const View& view : views) {
    together.push_back(view.memory());
    alone.push_back(view.memory());
  }
  for (std::size_t v = 0; v < views.size(); ++v) {
    EXPECT(fastio::plan_fault(views[v].plan, views[v].rows, views[v].columns) == nullptr);
    std::int32_t own = -1;
    fastio::transform_task(views[v].batch(file, alone[v], &own))->run(worker, 0, 1);
    if (expected == 0) expected = own;
    batches.push_back(views[v].batch(file, together[v], &status));
  }
  fastio::views_task(std::move(batches))->run(worker, 0, 1);
  EXPECT((status == 0) == (expected == 0));
  EXPECT(status != 0 || together == alone);
}

}  // namespace

int main() {
  fastio::Worker worker;  // kept, as a thread of the pool keeps it
  for (const int sampling : {1, 2}) {
    const File file =
        encode({width, height, 3, sampling, sampling, 90, 0, false, Content::noise}, generator);
    for (int round = 0; round < 300; ++round) {
      std::vector<View> views;
      for (int count = between(1, 6); count > 0; --count) views.push_back(any_view());
      expect_equal(worker, file, views);
    }
    const View inside{{0, 0, 9, 9, 5, 5, 0, 0, 5, 5, 0, 0, 0}, 5, 5, 3, false};
    const View outside{{width, 0, 9, 9, 5, 5, 0, 0, 5, 5, 0, 0, 0}, 5, 5, 3, false};
    expect_equal(worker, file, {inside, outside});
    const File half(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2));
    for (int round = 0; round < 50; ++round) expect_equal(worker, half, {any_view(), any_view()});
  }
  return failures;
}
