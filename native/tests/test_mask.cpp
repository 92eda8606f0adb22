// Batches of masks: numbers as stored through plans, rows that do not fit, every bit flipped.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "pictures/mask.h"
#include "pictures/worker.h"
#include "png_file.h"

namespace {

using fastio::MaskBatch;
using fastio::NumberRow;
using fastio::Plan;
using fastio::Status;

constexpr std::size_t height = 3;
constexpr std::size_t width = 4;

/// 4 x 3 numbers, 0 to 11, of `depth` bits (8 or 16: then each by 257) and colour type `color`.
File mask_file(int depth, int color) {
  File rows;
  for (std::uint8_t y = 0; y < height; ++y) {
    rows.push_back(0);
    for (std::uint8_t x = 0; x < width; ++x) {
      rows.insert(rows.end(), static_cast<std::size_t>(depth / 8),
                  static_cast<std::uint8_t>(y * width + x));
    }
  }
  const std::array<std::uint8_t, 13> header{0,
                                            0,
                                            0,
                                            width,
                                            0,
                                            0,
                                            0,
                                            height,
                                            static_cast<std::uint8_t>(depth),
                                            static_cast<std::uint8_t>(color)};
  return png_file(header, rows, color == 3 ? File(3 * 12) : File());
}

/// One mask through a plan (nullptr: whole) into 2 x 3 numbers, or 3 x 4 where it is whole, in
/// memory of their exact size.
struct Outcome {
  Status status;
  std::vector<std::uint16_t> numbers;
};

Outcome decoded(fastio::Worker& worker, const File& file, const Plan* plan,
                std::size_t number_bytes) {
  const std::size_t count = plan == nullptr ? height * width : 6;
  const auto row = std::make_unique<std::uint16_t[]>((count * number_bytes + 1) / 2);
  const NumberRow first{reinterpret_cast<std::uint8_t*>(row.get()),
                        plan == nullptr ? height : 2,
                        plan == nullptr ? width : 3,
                        1,
                        number_bytes,
                        false};
  std::int32_t status = -1;
  const auto copy = std::make_unique<std::uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), copy.get());
  MaskBatch batch{
      std::make_unique<fastio::Bytes[]>(1), nullptr, nullptr, {first, 77, nullptr, &status}};
  batch.spans[0] = {copy.get(), file.size()};
  if (plan != nullptr) {
    batch.plans = std::make_unique<Plan[]>(1);
    batch.plans[0] = *plan;
  }
  fastio::mask_task(std::move(batch))->run(worker, 0, 1);
  Outcome outcome{static_cast<Status>(status), {}};
  for (std::size_t i = 0; i < count; ++i) {
    outcome.numbers.push_back(number_bytes == 2 ? row[i] : first.data[i]);
  }
  return outcome;
}

// The box is columns 1 to 3 of rows 1 and 2; twice as high, of which lines 1 and 2; two columns of
// three; mirrored, with one column of 77.
constexpr Plan plan{1, 1, 3, 2, 3, 4, 0, 1, 2, 2, 0, 0, 1};

void test_numbers(fastio::Worker& worker) {
  for (const int color : {0, 3}) {
    const Outcome whole = decoded(worker, mask_file(8, color), nullptr, 1);
    EXPECT(whole.status == Status::ok);
    EXPECT((whole.numbers == std::vector<std::uint16_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    for (const std::size_t number_bytes : {1, 2}) {
      const Outcome part = decoded(worker, mask_file(8, color), &plan, number_bytes);
      EXPECT(part.status == Status::ok);
      EXPECT((part.numbers == std::vector<std::uint16_t>{77, 6, 5, 77, 10, 9}));
    }
  }
  const Outcome wide = decoded(worker, mask_file(16, 0), &plan, 2);
  EXPECT(wide.status == Status::ok);
  EXPECT((wide.numbers == std::vector<std::uint16_t>{77, 6 * 257, 5 * 257, 77, 10 * 257, 9 * 257}));
}

fastio::ColourWork step_of(fastio::ColourStep step, std::initializer_list<double> amounts = {}) {
  fastio::ColourWork made{static_cast<double>(step), {}};
  std::copy(amounts.begin(), amounts.end(), made.amounts.begin());
  return made;
}

// A row of 2 x 3 pixels in memory of its exact size: turned by half a circle, shifted by a pixel to
// the right, mirrored. Numbers outside are 9.
template <typename Number>
void test_moves_of(fastio::Worker& worker, std::size_t channels, bool planar) {
  using fastio::ColourStep;
  std::vector<Number> numbers;
  for (std::size_t i = 0; i < 6 * channels; ++i) {
    const std::size_t pixel = planar ? i % 6 : i / channels;
    const std::size_t channel = planar ? i / 6 : i % channels;
    numbers.push_back(static_cast<Number>(10 * pixel + channel));
  }
  auto* const data = reinterpret_cast<std::uint8_t*>(numbers.data());
  const NumberRow row{data, 2, 3, channels, sizeof(Number), planar};
  const std::array steps{
      step_of(ColourStep::affine, {-1, 0, 0, 0, -1, 0, 0, 0, 0, 1, 9}),
      step_of(ColourStep::none),
      step_of(ColourStep::affine, {1, 0, -1, 0, 1, 0, 0, 0, 0, 1, 9}),
      step_of(ColourStep::flip_x),
      step_of(ColourStep::flip_y),
  };
  EXPECT(fastio::move_fault({steps.data(), steps.size()}, 2, 3) == nullptr);
  EXPECT(worker.mover.run({steps.data(), steps.size()}, row));
  constexpr std::array<int, 6> shown{1, 2, -1, 4, 5, -1};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int pixel = shown[planar ? i % 6 : i / channels];
    const std::size_t channel = planar ? i / 6 : i % channels;
    EXPECT(numbers[i] ==
           (pixel < 0 ? 9 : static_cast<Number>(10 * pixel + static_cast<int>(channel))));
  }
}

void test_moves(fastio::Worker& worker) {
  for (const bool planar : {false, true}) {
    for (const std::size_t channels : {1, 2, 3, 4}) {
      test_moves_of<std::uint8_t>(worker, channels, planar);
      test_moves_of<std::uint16_t>(worker, channels, planar);
    }
  }
}

void test_steps_that_are_no_moves() {
  using fastio::ColourStep;
  const auto bilinear = step_of(ColourStep::affine, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 9});
  EXPECT(fastio::move_fault({&bilinear, 1}, 2, 3) != nullptr);
  const auto colour = step_of(ColourStep::invert);
  EXPECT(fastio::move_fault({&colour, 1}, 2, 3) != nullptr);
  const auto none = step_of(ColourStep::perspective, {std::numeric_limits<double>::quiet_NaN()});
  EXPECT(fastio::move_fault({&none, 1}, 2, 3) != nullptr);
}

void test_flips(fastio::Worker& worker) {
  Plan turned = plan;
  turned.flip = 3;
  const Outcome part = decoded(worker, mask_file(8, 0), &turned, 1);
  EXPECT((part.numbers == std::vector<std::uint16_t>{77, 10, 9, 77, 6, 5}));
}

void test_misfits(fastio::Worker& worker) {
  EXPECT(decoded(worker, mask_file(16, 0), &plan, 1).status == Status::bad_shape);
  Plan outside = plan;
  outside.box_x = 2;
  EXPECT(decoded(worker, mask_file(8, 0), &outside, 1).status == Status::bad_shape);
}

void test_damage(fastio::Worker& worker) {
  for (const File& good : {mask_file(8, 3), mask_file(16, 0)}) {
    for (std::size_t size = 0; size < good.size(); ++size) {
      const File prefix(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT(decoded(worker, prefix, &plan, 2).status != Status::ok);
    }
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      File flipped = good;
      flipped[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      EXPECT(decoded(worker, flipped, &plan, 2).status != Status::ok);
    }
  }
}

}  // namespace

int main() {
  fastio::Worker worker;  // kept, as a thread of the pool keeps it
  test_numbers(worker);
  test_moves(worker);
  test_steps_that_are_no_moves();
  test_flips(worker);
  test_misfits(worker);
  test_damage(worker);
  return failures;
}
