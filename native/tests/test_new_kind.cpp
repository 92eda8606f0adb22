// A new kind of picture is one file and one row: compiled with toy_kind.cpp and its row, the core
// detects, measures, decodes and transforms such files, and refuses damaged ones.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "check.h"
#include "core/checksum.h"
#include "pictures/decode.h"
#include "pictures/kinds.h"
#include "pictures/probe.h"
#include "pictures/worker.h"
#include "transform/transform.h"

namespace {

using fastio::Bytes;
using fastio::ImageKind;
using fastio::Plan;
using fastio::Status;
using File = std::vector<std::uint8_t>;

constexpr std::uint8_t width = 14;
constexpr std::uint8_t height = 9;

/// RGB, the same everywhere but for the place.
File pixels_of(std::size_t w, std::size_t h) {
  File pixels(3 * w * h);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(37 * i);
  return pixels;
}

File file_of(std::uint8_t w, std::uint8_t h, const File& pixels) {
  File file{'N', 'T', 'o', 'y', 0, 0, 0, 0, w, 0, 0, 0, h, 0, 0, 0};
  file.insert(file.end(), pixels.begin(), pixels.end());
  return file;
}

const File pixels = pixels_of(width, height);
const File toy = file_of(width, height, pixels);

/// Its first bytes in memory of their size, so that a sanitizer sees what is read behind them.
File prefix(std::size_t size) {
  return {toy.begin(), toy.begin() + static_cast<std::ptrdiff_t>(size)};
}

std::unique_ptr<Bytes[]> spans_of(const File& file) {
  auto spans = std::make_unique<Bytes[]>(1);
  spans[0] = file;
  return spans;
}

Status run(fastio::Task& task, const std::int32_t& status) {
  fastio::Worker worker;
  task.run(worker, 0, 1);
  return static_cast<Status>(status);
}

void test_detected() {
  EXPECT(fastio::image_kind(toy) == ImageKind::toy);
  EXPECT(fastio::native_kind(ImageKind::toy) == &fastio::toy_kind);
  EXPECT(fastio::native_kinds().back() == &fastio::toy_kind);
  for (std::size_t size = 0; size < 8; ++size) {
    EXPECT(fastio::image_kind(prefix(size)) == ImageKind::unknown);
  }
  EXPECT(fastio::image_kind(File{'P', '6', '\n'}) == ImageKind::pnm);
  const fastio::Signature later{0, 3, {'A', 'd', 'd'}};  // numbers of Python's follow
  const auto next = static_cast<std::int32_t>(ImageKind::toy) + 1;
  EXPECT(static_cast<std::int32_t>(fastio::add_kind({&later, 1})) == next);
}

/// As packing asks: the five numbers of a file, and whether it breaks off.
std::array<std::int32_t, 5> probed(const File& file) {
  std::array<std::int32_t, 5> numbers{};
  const auto task = fastio::probe_task(spans_of(file), true, numbers.data());
  (void)run(*task, numbers[0]);
  return numbers;
}

void test_probed() {
  constexpr auto number = static_cast<std::int32_t>(ImageKind::toy);
  EXPECT((probed(toy) == std::array<std::int32_t, 5>{0, height, width, 3, number}));
  for (std::size_t size = 8; size < toy.size(); ++size) {
    EXPECT(static_cast<Status>(probed(prefix(size))[0]) == Status::truncated);
  }
  for (const File& empty : {file_of(0, height, pixels), file_of(width, 0, pixels)}) {
    EXPECT(static_cast<Status>(probed(empty)[0]) == Status::corrupt);
  }
}

/// The whole picture, as a batch of one.
Status decoded(const File& file, int channels, File& out, const std::uint32_t* checksum = nullptr) {
  out.assign(std::size_t{width} * height * static_cast<std::size_t>(channels), 7);
  std::int32_t status = -1;
  const fastio::Pictures pictures{{out.data(), height, width, channels}, checksum, &status};
  return run(*fastio::decode_task(spans_of(file), nullptr, pictures), status);
}

void test_decoded() {
  File out;
  EXPECT(decoded(toy, 3, out) == Status::ok && out == pixels);
  File grey;
  File rgba;
  for (std::size_t i = 0; i < pixels.size(); i += 3) {
    grey.push_back(fastio::luma(pixels[i], pixels[i + 1], pixels[i + 2]));
    rgba.insert(rgba.end(), {pixels[i], pixels[i + 1], pixels[i + 2], 255});
  }
  EXPECT(decoded(toy, 1, out) == Status::ok && out == grey);
  EXPECT(decoded(toy, 4, out) == Status::ok && out == rgba);
}

void test_damage_is_refused() {
  File out;
  const std::uint32_t checksum = fastio::crc32(toy);
  EXPECT(decoded(toy, 3, out, &checksum) == Status::ok);
  File changed = toy;
  changed[40] ^= 1;
  EXPECT(decoded(changed, 3, out, &checksum) == Status::bad_checksum);
  for (std::size_t size = 8; size < toy.size(); ++size) {
    EXPECT(decoded(prefix(size), 3, out) == Status::truncated);
  }
  EXPECT(decoded(file_of(0, height, pixels), 3, out) == Status::corrupt);
  EXPECT(decoded(file_of(height, width, pixels), 3, out) == Status::bad_shape);
  changed = toy;
  std::fill_n(changed.begin() + 8, 8, std::uint8_t{0xFF});  // 2^32 - 1 pixels a side
  EXPECT(decoded(changed, 3, out) == Status::truncated);
}

/// One row of 6 x 8 pixels, planar, by a plan; of a file, or of bare pixels.
Status transformed(const File& value, bool is_file, const Plan& plan, File& out,
                   std::size_t max_pixels = fastio::any_pixels) {
  EXPECT(fastio::plan_fault(plan, 6, 8) == nullptr);
  out.assign(std::size_t{3} * 6 * 8, 7);
  std::int32_t status = -1;
  auto plans = std::make_unique<Plan[]>(1);
  plans[0] = plan;
  const fastio::TransformOptions options{
      fastio::Filter::bilinear, {1, 2, 3, 0}, true, false, true, max_pixels};
  fastio::TransformBatch batch{spans_of(value),
                               nullptr,
                               std::move(plans),
                               options,
                               {{out.data(), 6, 8, 3}, nullptr, &status},
                               {}};
  const auto task = is_file ? fastio::transform_task(std::move(batch))
                            : fastio::transform_raw_task(std::move(batch), {height, width});
  return run(*task, status);
}

void test_transformed() {
  constexpr std::array plans{
      Plan{3, 1, 8, 6, 8, 6, 0, 0, 8, 6, 0, 0, 0},    // a crop
      Plan{3, 1, 8, 6, 8, 6, 0, 0, 8, 6, 0, 0, 1},    // mirrored
      Plan{0, 0, 14, 9, 8, 6, 0, 0, 8, 6, 0, 0, 0},   // smaller
      Plan{5, 2, 7, 5, 20, 12, 9, 4, 8, 6, 0, 0, 1},  // a crop, larger, a window of it, mirrored
      Plan{10, 5, 4, 4, 4, 4, 0, 0, 4, 4, 2, 1, 0},   // edges
  };
  File of_file;
  File of_pixels;
  for (const Plan& plan : plans) {
    EXPECT(transformed(toy, true, plan, of_file) == Status::ok);
    EXPECT(transformed(pixels, false, plan, of_pixels) == Status::ok);
    EXPECT(of_file == of_pixels);
  }
  constexpr Plan outside{7, 1, 8, 6, 8, 6, 0, 0, 8, 6, 0, 0, 0};
  EXPECT(transformed(toy, true, outside, of_file) == Status::bad_shape);
  EXPECT(transformed(toy, true, plans[0], of_file, 100) == Status::too_large);
  EXPECT(transformed(prefix(toy.size() - 1), true, plans[0], of_file) == Status::truncated);
}

/// A plan of whole pixels, mirrored, and then of what came out: what the plan alone makes of the
/// mirrored pixels.
void test_plans_behind_steps() {
  const auto work = [](fastio::ColourStep step, std::initializer_list<double> amounts) {
    fastio::ColourWork made{static_cast<double>(step), {}};
    std::copy(amounts.begin(), amounts.end(), made.amounts.begin());
    return made;
  };
  File mirrored = pixels;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      std::copy_n(pixels.begin() + static_cast<std::ptrdiff_t>(3 * (y * width + x)), 3,
                  mirrored.begin() + static_cast<std::ptrdiff_t>(3 * ((y + 1) * width - 1 - x)));
    }
  }
  constexpr std::array plans{
      Plan{3, 1, 8, 6, 8, 6, 0, 0, 8, 6, 0, 0, 0},    // a crop
      Plan{0, 0, 14, 9, 8, 6, 0, 0, 8, 6, 0, 0, 2},   // smaller, upside down
      Plan{5, 2, 7, 5, 20, 12, 9, 4, 8, 6, 0, 0, 1},  // a crop, larger, a window of it, mirrored
      Plan{10, 5, 4, 4, 4, 4, 0, 0, 4, 4, 2, 1, 0},   // edges
      Plan{10, 5, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0},   // edges alone
  };
  for (const Plan& plan : plans) {
    for (const bool is_file : {false, true}) {
      File direct, out(std::size_t{3} * 6 * 8, 7);
      EXPECT(transformed(mirrored, false, plan, direct) == Status::ok);
      const std::array program{
          work(fastio::ColourStep::canvas, {height, width, 5, 200}),
          work(fastio::ColourStep::flip_x, {}),
          work(fastio::ColourStep::plan,
               {double(plan.box_x), double(plan.box_y), double(plan.box_w), double(plan.box_h),
                double(plan.virtual_w), double(plan.virtual_h), double(plan.window_x),
                double(plan.window_y), double(plan.window_w), double(plan.window_h),
                double(plan.place_x), double(plan.place_y), double(plan.flip)}),
          work(fastio::ColourStep::canvas, {6, 8, 0, 1, 2, 3}),
      };
      EXPECT(fastio::colour_fault({program.data(), program.size()}, 6, 8, 3) == nullptr);
      auto steps = std::make_unique<fastio::ColourWork[]>(program.size());
      std::copy(program.begin(), program.end(), steps.get());
      auto whole = std::make_unique<Plan[]>(1);
      whole[0] = {0, 0, 14, 9, 14, 9, 0, 0, 14, 9, 0, 0, 0};
      std::int32_t status = -1;
      fastio::TransformBatch batch{
          spans_of(is_file ? toy : pixels),
          nullptr,
          std::move(whole),
          {fastio::Filter::nearest, {9, 9, 9, 0}, true, false, true, fastio::any_pixels},
          {{out.data(), 6, 8, 3}, nullptr, &status},
          {std::move(steps), program.size()}};
      const auto task = is_file ? fastio::transform_task(std::move(batch))
                                : fastio::transform_raw_task(std::move(batch), {height, width});
      EXPECT(run(*task, status) == Status::ok);
      EXPECT(out == direct);
    }
  }
}

}  // namespace

int main() {
  test_detected();
  test_probed();
  test_decoded();
  test_damage_is_refused();
  test_transformed();
  test_plans_behind_steps();
  return failures;
}
