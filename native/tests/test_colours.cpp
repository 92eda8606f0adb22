// Colours: all instruction sets give the same bytes and stay inside their picture; a program that
// would not is refused.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "transform/colours.h"

namespace {

using fastio::Colourist;
using fastio::ColourStep;
using fastio::ColourWork;
using fastio::Picture;
using fastio::SimdLevel;
using fastio::Status;
using Buffer = std::vector<std::uint8_t>;

constexpr std::size_t guard = 64;
constexpr std::uint8_t untouched = 0xA5;

ColourWork work(ColourStep step, std::initializer_list<double> amounts = {}) {
  ColourWork made{static_cast<double>(step), {}};
  std::copy(amounts.begin(), amounts.end(), made.amounts.begin());
  return made;
}

std::vector<ColourWork> every_step(std::size_t height, std::size_t width) {
  const auto down = static_cast<double>(height);
  const auto across = static_cast<double>(width);
  std::vector<ColourWork> steps{
      work(ColourStep::brightness, {1.3}),
      work(ColourStep::contrast, {0.7}),
      work(ColourStep::saturation, {1.6}),
      work(ColourStep::hue, {-0.2}),
      work(ColourStep::sharpness, {1.9}),
      work(ColourStep::erase, {0, 0, down / 2 - (height % 2) * 0.5, across, 1, 2, 3}),
      work(ColourStep::flip_x),
      work(ColourStep::flip_y),
      work(ColourStep::affine, {0.9, 0.2, 1.1, -0.3, 1.2, -2, 0, 0, 0, 1, 9, 8, 7}),
      work(ColourStep::affine, {0.9, -0.2, 0.3, 0.3, 1.2, 2, 0, 0, 1, 0}),
      work(ColourStep::perspective, {0.9, 0.01, 1, 0.1, 0.8, 1, 0.001, 0.002, 1, 1, 5, 6, 7}),
      work(ColourStep::begin_mix, {0.4}),
      work(ColourStep::invert),
      work(ColourStep::add_to_mix, {0.3}),
      work(ColourStep::begin_chain),
      work(ColourStep::solarize, {99.5}),
      work(ColourStep::add_to_mix, {0.3}),
      work(ColourStep::end_mix),
      work(ColourStep::autocontrast),
      work(ColourStep::equalize),
      work(ColourStep::posterize, {5}),
      work(ColourStep::grey),
  };
  if (height > 2 && width > 2) steps.push_back(work(ColourStep::blur, {5, 3, 0.9, 1.4}));
  return steps;
}

void test_levels_agree() {
  std::mt19937 random(1);
  for (const int channels : {1, 3}) {
    for (std::size_t width = 1; width < 90; width += 1 + width / 9) {
      const std::size_t height = 1 + random() % 13;
      Buffer pixels(height * width * static_cast<std::size_t>(channels));
      for (auto& byte : pixels) byte = static_cast<std::uint8_t>(random());
      for (const ColourWork& step : every_step(height, width)) {
        const std::vector<ColourWork> program{work(ColourStep::begin_mix, {0.5}), step};
        EXPECT(fastio::colour_fault({program.data(), 2}, height, width, channels) == nullptr);
        Buffer first;
        for (const SimdLevel level : {SimdLevel::none, SimdLevel::avx2, fastio::simd_level()}) {
          if (level > fastio::simd_level()) continue;
          Buffer changed = pixels;
          changed.resize(pixels.size() + guard, untouched);
          Colourist colourist(level);
          const Picture picture{changed.data(), height, width, channels};
          EXPECT(colourist.run({program.data(), 2}, picture) == Status::ok);
          for (std::size_t i = 0; i < guard; ++i) {
            EXPECT(changed[pixels.size() + i] == untouched);
          }
          if (first.empty()) first = changed;
          EXPECT(first == changed);
        }
      }
    }
  }
}

void test_programs_that_reach_outside_are_refused() {
  const auto fault = [](const ColourWork& step, int channels = 3) {
    return fastio::colour_fault({&step, 1}, 6, 8, channels) != nullptr;
  };
  EXPECT(!fault(work(ColourStep::erase, {0, 0, 6, 8})));
  EXPECT(fault(work(ColourStep::erase, {0, 0, 7, 8})));
  EXPECT(fault(work(ColourStep::erase, {0, 0, 6, 9})));
  EXPECT(fault(work(ColourStep::erase, {-1, 0, 6, 8})));
  EXPECT(fault(work(ColourStep::erase, {4, 0, 3, 8})));
  EXPECT(fault(work(ColourStep::erase, {0.5, 0, 3, 8})));
  EXPECT(!fault(work(ColourStep::blur, {15, 11, 1, 1})));
  EXPECT(fault(work(ColourStep::blur, {17, 11, 1, 1})));
  EXPECT(fault(work(ColourStep::blur, {15, 13, 1, 1})));
  EXPECT(fault(work(ColourStep::blur, {4, 3, 1, 1})));
  EXPECT(fault(work(ColourStep::blur, {3, 3, 0, 1})));
  EXPECT(fault(work(ColourStep::posterize, {9})));
  EXPECT(fault(work(ColourStep::solarize, {257})));
  EXPECT(fault(work(ColourStep::hue, {2})));
  EXPECT(fault(work(ColourStep::brightness, {std::numeric_limits<double>::quiet_NaN()})));
  EXPECT(fault(work(ColourStep::end_mix)));
  EXPECT(fault(work(static_cast<ColourStep>(static_cast<int>(ColourStep::last) + 1))));
  EXPECT(fault(work(ColourStep::brightness, {1}), 4));
  EXPECT(!fault(work(ColourStep::flip_x), 4));
}

// A picture of 6 x 8, of which 3 x 4 pixels from (2, 1) on are the row.
void test_canvases_lead_to_the_row() {
  const auto canvas = work(ColourStep::canvas, {6, 8, 1, 9});
  const auto plan = work(ColourStep::plan, {0, 0, 8, 6, 8, 6, 2, 1, 4, 3, 0, 0, 0});
  const auto row = work(ColourStep::canvas, {3, 4, 5});
  const auto fault = [](const std::vector<ColourWork>& program, std::size_t height = 3) {
    const fastio::ColourProgram steps{program.data(), program.size()};
    const bool is_wrong = fastio::colour_fault(steps, height, 4, 3) != nullptr;
    EXPECT(is_wrong == (fastio::move_fault(steps, height, 4) != nullptr));
    return is_wrong;
  };
  EXPECT(!fault({canvas, work(ColourStep::flip_x), plan, row, work(ColourStep::flip_y)}));
  EXPECT(!fault({row}));
  EXPECT(fault({canvas, plan, row}, 4));
  EXPECT(fault({canvas}));
  EXPECT(fault({canvas, row}));
  EXPECT(fault({canvas, plan}));
  EXPECT(fault({plan, row}));
  EXPECT(fault({work(ColourStep::none), row}));
  EXPECT(fault({canvas, work(ColourStep::plan, {1, 0, 8, 6, 8, 6, 2, 1, 4, 3, 0, 0, 0}), row}));
  EXPECT(fault({canvas, work(ColourStep::plan, {0, 0, 8, 6, 8, 6, 2, 1, 5, 3, 0, 0, 0}), row}));
  EXPECT(fault({canvas, work(ColourStep::plan, {0, 0, 7.5, 6, 8, 6, 2, 1, 4, 3, 0, 0, 0}), row}));
  EXPECT(fault({work(ColourStep::canvas, {3, 4, 6})}));
  EXPECT(fault({work(ColourStep::canvas, {3, 4, 0, -1})}));
  EXPECT(fault({work(ColourStep::canvas, {3, 1e300})}, 3));
}

// Writes its last number where the picture begins; fails without numbers.
std::int32_t set_first(std::uint8_t* pixels, std::int64_t height, std::int64_t width,
                       std::int64_t channels, const double* numbers, std::int64_t count) {
  if (count == 0) return 1;
  pixels[0] = static_cast<std::uint8_t>(numbers[count - 1]);
  pixels[height * width * channels - 1] = static_cast<std::uint8_t>(numbers[0]);
  return 0;
}

void test_functions_get_their_numbers() {
  const auto address = static_cast<double>(reinterpret_cast<std::uintptr_t>(&set_first));
  for (std::size_t count = 1; count < 40; ++count) {
    const std::size_t first = std::min<std::size_t>(count, 11);
    std::vector<ColourWork> program{work(ColourStep::invert), work(ColourStep::call, {address})};
    program[1].amounts[1] = static_cast<double>(count);
    for (std::size_t i = 0; i < first; ++i) program[1].amounts[2 + i] = static_cast<double>(i + 1);
    for (std::size_t i = first; i < count; ++i) {
      const std::size_t place = (i - first) % ColourWork::amounts_of_a_step;
      if (place == 0) program.push_back(work(ColourStep::more_numbers));
      program.back().amounts[place] = static_cast<double>(i + 1);
    }
    program.push_back(work(ColourStep::invert));
    EXPECT(fastio::colour_fault({program.data(), program.size()}, 2, 3, 4) != nullptr);
    EXPECT(fastio::colour_fault({program.data(), program.size()}, 2, 3, 3) == nullptr);
    if (count > first) {
      EXPECT(fastio::colour_fault({program.data(), program.size() - 2}, 2, 3, 3) != nullptr);
    }
    Buffer pixels(2 * 3 * 3, 7);
    Colourist colourist;
    EXPECT(colourist.run({program.data(), program.size()}, {pixels.data(), 2, 3, 3}) == Status::ok);
    EXPECT(pixels.front() == 255 - count);
    EXPECT(pixels.back() == 254);
    EXPECT(pixels[5] == 7);
  }
  const ColourWork none = work(ColourStep::call, {address, 0});
  Buffer pixels(12, 7);
  EXPECT(Colourist().run({&none, 1}, {pixels.data(), 2, 2, 3}) == Status::failed);
  EXPECT(fastio::colour_fault({&none, 1}, 2, 2, 4) == nullptr);
  const ColourWork nowhere = work(ColourStep::call, {0, 0});
  EXPECT(fastio::colour_fault({&nowhere, 1}, 2, 2, 3) != nullptr);
}

// The place of a byte of a picture in its patches: by its own pixel, of the first frame.
std::size_t place_of(const fastio::Patches& patches, std::size_t across, std::size_t channels,
                     std::size_t y, std::size_t x, std::size_t c) {
  const auto [side, merge, frames, planar] = patches;
  const std::size_t row = y / side, column = x / side;
  const std::size_t block = row / merge * (across / merge) + column / merge;
  const std::size_t line = (block * merge + row % merge) * merge + column % merge;
  const std::size_t pixel = y % side * side + x % side;
  const std::size_t pixels = side * side * frames;
  return line * pixels * channels + (planar ? c * pixels + pixel : pixel * channels + c);
}

void test_patches_have_each_byte_where_it_belongs() {
  std::mt19937 random(7);
  for (int turn = 0; turn < 300; ++turn) {
    const auto below = [&](std::size_t most) { return random() % most; };
    const std::size_t channels = std::array<std::size_t, 3>{1, 3, 4}[below(3)];
    const std::size_t height = 1 + below(40), width = 1 + below(40);
    const fastio::Patches patches{1 + below(17), 1 + below(3), 1 + below(3), below(2) == 1};
    const std::size_t across = patches.along(width), count = patches.along(height) * across;
    const std::size_t pixels = patches.side * patches.side * patches.frames, more = below(3);
    Buffer picture(height * width * channels);
    for (std::uint8_t& value : picture) value = static_cast<std::uint8_t>(1 + below(255));
    Buffer lines((count + more) * pixels * channels + guard, untouched);
    fastio::cut_patches({picture.data(), height, width, static_cast<int>(channels)}, patches,
                        {lines.data(), count + more, pixels, static_cast<int>(channels)});
    const auto end = lines.end() - guard;
    EXPECT(std::all_of(end, lines.end(), [](auto v) { return v == untouched; }));
    bool agrees = true;
    const std::size_t frame =
        patches.side * patches.side * (patches.planar ? std::size_t{1} : channels);
    for (std::size_t i = 0; i < picture.size(); ++i) {
      const std::size_t x = i / channels % width, y = i / channels / width;
      const std::size_t place = place_of(patches, across, channels, y, x, i % channels);
      for (std::size_t k = 0; k < patches.frames; ++k) {
        agrees = agrees && lines[place + k * frame] == picture[i];
        lines[place + k * frame] = 0;
      }
    }
    EXPECT(agrees);
    EXPECT(std::all_of(lines.begin(), end, [](auto v) { return v == 0; }));
  }
}

void test_patches_that_do_not_fit_are_refused() {
  const auto fault = [](std::vector<ColourWork> steps, std::size_t lines, std::size_t width) {
    return fastio::colour_fault({steps.data(), steps.size()}, lines, width, 3) != nullptr;
  };
  const ColourWork canvas = work(ColourStep::canvas, {9, 8});
  const auto cut = [](std::initializer_list<double> how) { return work(ColourStep::patches, how); };
  EXPECT(!fault({canvas, cut({4, 1, 1, 0})}, 6, 16));
  EXPECT(!fault({canvas, work(ColourStep::invert), cut({4, 2, 2, 1})}, 8, 32));
  EXPECT(fault({canvas, cut({4, 1, 1, 0})}, 5, 16));
  EXPECT(fault({canvas, cut({4, 1, 1, 0})}, 6, 17));
  EXPECT(fault({cut({4, 1, 1, 0})}, 6, 16));
  EXPECT(fault({canvas, cut({4, 1, 1, 0}), work(ColourStep::invert)}, 6, 16));
  for (const auto& how : {std::initializer_list<double>{0, 1, 1, 0},
                          {4, 0, 1, 0},
                          {4, 1, 0, 0},
                          {4, 1, 1, 2},
                          {1e9, 1, 1, 0},
                          {4, 0.5, 1, 0}}) {
    EXPECT(fault({canvas, cut(how)}, 1 << 20, 16));
  }
}

}  // namespace

int main() {
  test_canvases_lead_to_the_row();
  test_functions_get_their_numbers();
  test_patches_have_each_byte_where_it_belongs();
  test_patches_that_do_not_fit_are_refused();
  test_levels_agree();
  test_programs_that_reach_outside_are_refused();
  return failures;
}
