/// Colours: what is done to the pixels of a finished picture, step by step, on the thread that made
/// it. Each step gives the bytes that torchvision's transforms v2 give for uint8 tensors, but where
/// its comment says otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/bytes.h"
#include "core/simd.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

namespace fastio {

/// The steps, and the amounts that each reads. Pictures have 1 or 3 channels; those erased or
/// flipped may have 4.
enum class ColourStep : int {
  none,
  brightness,    ///< factor
  contrast,      ///< factor; towards the mean of the picture's luma
  saturation,    ///< factor; 3 channels
  hue,           ///< part of a turn, -0.5 to 0.5; 3 channels
  grey,          ///< luma into all channels
  invert,        ///< 255 - value
  solarize,      ///< threshold, 0 to 256: values of at least that are inverted
  posterize,     ///< bits that are kept, 0 to 8
  autocontrast,  ///< each channel is stretched from 0 to 255
  equalize,      ///< each channel's histogram is flattened, as by Pillow
  sharpness,     ///< factor; pictures of at least 3 x 3 pixels
  blur,         ///< kernel width, height (odd, at most 2 * side - 1), sigma x, sigma y; to a level:
                ///< torch sums up in another order
  erase,        ///< top, left, bottom, right, value of each channel
  flip_x,       ///< left and right exchanged
  flip_y,       ///< top and bottom exchanged
  affine,       ///< the matrix from (x, y, 1) of the result to where it is read, 6 numbers, from
                ///< the middle of the picture; then as perspective's
  perspective,  ///< 8 numbers, of which the last two belong to the divisor, from the top left
                ///< corner; 1: bilinear, 0: nearest; 1: filled, 0: edges are black; the fill, a
                ///< value a channel. To a level for bilinear
  begin_mix,    ///< weight of the picture as it is, which is kept
  begin_chain,  ///< the picture is again the one kept
  add_to_mix,   ///< weight of the picture as it is
  end_mix,      ///< the picture is what was added up
  call,         ///< the address of a user's function, see PictureCall; how many numbers it takes,
                ///< and the first 11 of these. Pictures of any channels
  more_numbers,  ///< up to 13 further numbers of the call just before
  canvas,        ///< height and width of the row that the plan just before fills, or, as the first
           ///< step, the batch's plan; its filter, and its fill, a value for each of 4 channels
  plan,     ///< the picture is what this plan, 13 numbers, makes of it: a canvas follows
  permute,  ///< which channel each of 3 becomes a copy of
  noise,    ///< mean and deviation of normal noise, in levels, cut to whole ones; a seed of 64
            ///< bits in four parts. Other numbers than torch's, of the same distribution
  patches,  ///< the last step, behind a canvas: the row has the patches of the picture, see Patches
  last = patches,
};

/// A user's function on a picture: height x width x channels bytes, which it changes in place, and
/// the picture's own `count` numbers. Anything but 0 makes the picture `failed`. Called from
/// several threads at once; no exception may leave it.
using PictureCall = std::int32_t (*)(std::uint8_t* pixels, std::int64_t height, std::int64_t width,
                                     std::int64_t channels, const double* numbers,
                                     std::int64_t count);

/// A step of a program, as Python writes it: which, then its amounts.
struct ColourWork {
  static constexpr std::size_t amounts_of_a_step = 13;
  double step;
  std::array<double, amounts_of_a_step> amounts;
};
static_assert(sizeof(ColourWork) == 14 * sizeof(double));

/// What to do to one picture.
struct ColourProgram {
  const ColourWork* steps = nullptr;
  std::size_t count = 0;
};

/// A program for each picture of a batch: `count` steps a row, which colour_fault has passed, or of
/// masks move_fault.
struct ColourPrograms {
  std::unique_ptr<ColourWork[]> steps;
  std::size_t count = 0;

  [[nodiscard]] ColourProgram of(std::size_t picture) const noexcept {
    return {steps.get() + picture * count, count};
  }
};

/// The magnitudes of normal noise: quantiles of the normal distribution above its middle, each of
/// the same probability, ascending.
inline constexpr std::size_t count_of_quantiles = 1 << 15;
[[nodiscard]] const std::array<float, count_of_quantiles>& normal_quantiles() noexcept;

/// What a canvas says. Of pictures whose program begins with none, the batch does.
struct Canvas {
  std::size_t height;
  std::size_t width;
  int filter;
  std::array<std::uint16_t, 4> fill;
};
[[nodiscard]] Canvas canvas_of(const ColourWork& work) noexcept;
[[nodiscard]] Plan plan_of(const ColourWork& work) noexcept;

/// How a picture is cut into patches, as the amounts of a step say: squares of `side` x `side`
/// pixels, line by line; or block by block of `merge` x `merge` of them, the patches of each line
/// by line. A patch has its pixels `frames` times, one behind the other: pixel behind pixel, or
/// `planar`, in each channel. What the last patches of lines and columns lack is 0.
struct Patches {
  std::size_t side;
  std::size_t merge;
  std::size_t frames;
  bool planar;

  /// How many patches a side of the picture has.
  [[nodiscard]] std::size_t along(std::size_t pixels) const noexcept {
    const std::size_t block = side * merge;
    return (pixels + block - 1) / block * merge;
  }
};

/// Of the last step of a program; nothing where that cuts none.
[[nodiscard]] std::optional<Patches> patches_of(const ColourProgram& program) noexcept;

/// Cuts a picture into the lines of `out`, one patch each, and makes those behind them 0.
/// `out.height` is at least the number of patches, `out.width` the pixels of one.
void cut_patches(const Picture& picture, const Patches& patches, const Picture& out) noexcept;

/// Whether the first plan fills a canvas, and not the row of the batch.
[[nodiscard]] bool begins_with_canvas(const ColourProgram& program) noexcept;

/// Where the first plan step at or behind `first` stands; the program's length without one.
[[nodiscard]] std::size_t next_plan(const ColourProgram& program, std::size_t first) noexcept;

/// What is wrong with a program for pictures of this size, in words that end a message; nullptr
/// when nothing is. A program that passes cannot reach outside the picture, and its last canvas has
/// this size, or patches that fit into as many lines of this width.
[[nodiscard]] const char* colour_fault(const ColourProgram& program, std::size_t height,
                                       std::size_t width, int channels) noexcept;

/// What is wrong with a program for masks, as colour_fault says it: only flips, plans and warps by
/// the nearest pixel move numbers.
[[nodiscard]] const char* move_fault(const ColourProgram& program, std::size_t height,
                                     std::size_t width) noexcept;

/// The number that a step puts around masks: 0 where it puts none.
[[nodiscard]] double number_outside(const ColourWork& work) noexcept;

/// Which pixel of a picture each pixel of line `y` shows after a flip or a warp by the nearest
/// pixel, counted from the top left corner row by row: -1 where it shows none. `memory` has room
/// for `floats_of_places(width)`.
void moved_places(const ColourWork& work, std::size_t height, std::size_t width, std::size_t y,
                  float* memory, std::int64_t* out) noexcept;
[[nodiscard]] std::size_t floats_of_places(std::size_t width) noexcept;

struct ColourLoops;

/// Runs programs; keeps its memory. Not thread-safe: one per thread.
class Colourist {
 public:
  Colourist() noexcept : Colourist(simd_level()) {}
  explicit Colourist(SimdLevel level) noexcept;

  /// Changes the picture, whose rows follow without gaps, pixel behind pixel. The program has
  /// passed colour_fault, and has no plans. `failed` where a function of the user's did,
  /// `unsupported` when there is no memory.
  [[nodiscard]] Status run(const ColourProgram& program, const Picture& picture) noexcept;

 private:
  [[nodiscard]] bool step(const ColourWork& work, const Picture& picture) noexcept;
  [[nodiscard]] Status call(const ColourWork* work, const Picture& picture) noexcept;
  [[nodiscard]] const std::uint8_t* copied(const Picture& picture) noexcept;
  [[nodiscard]] bool sharpen(const Picture& picture, double factor) noexcept;
  [[nodiscard]] bool blur(const Picture& picture, const ColourWork& work) noexcept;
  [[nodiscard]] bool add_noise(const Picture& picture, const ColourWork& work) noexcept;
  [[nodiscard]] bool flip_x(const Picture& picture) noexcept;
  [[nodiscard]] bool warp(const Picture& picture, const ColourWork& work) noexcept;
  [[nodiscard]] bool mix(ColourStep step, const Picture& picture, double weight) noexcept;

  SimdLevel level_;
  const ColourLoops* loops_;
  Scratch copy_;
  Scratch rows_;
  Scratch kept_;
  Scratch sums_;
  Scratch numbers_;
  Scratch noise_;  ///< levels of noise of this mean and deviation, by 16 random bits
  std::optional<std::array<float, 2>> noise_look_;
};

// The inner loops, by instruction set (inside the core only). All give the same bytes, with one
// rounding where a product is added: torch's loops have fused multiply-add.

/// Planes of a few pixels of a colour picture, which the loops change in place.
struct ColourPlanes {
  static constexpr std::size_t pixels = 256;
  alignas(64) std::uint8_t red[pixels];
  alignas(64) std::uint8_t green[pixels];
  alignas(64) std::uint8_t blue[pixels];
};

/// One row of a warp: of pixel i of the result, `x` + i and `y` are its place; the matrix takes
/// that to (-1, 1) in the picture, whose halved size is `half`.
struct WarpRow {
  std::array<float, 8> matrix;  ///< x: 3, y: 3, divisor: 2 and 1
  std::array<float, 2> half;
  float x;
  float y;
  bool divides;  ///< perspective
  bool rounds;   ///< to whole pixels, halves to even ones
};

/// Loops over `count` values or pixels. Those over planes do all of a ColourPlanes.
struct ColourLoops {
  /// value * factor + constant * weight, for as many values as fit vectors: returns how many.
  std::size_t (*levels)(std::uint8_t* values, std::size_t count, float factor, float constant,
                        float weight) noexcept;
  /// Takes values into account for the least and the most of every one `together` values further;
  /// as many as fit: returns how many.
  std::size_t (*extremes)(const std::uint8_t* values, std::size_t count, std::uint8_t* least,
                          std::uint8_t* most) noexcept;
  /// (value - low) / scale, whose numbers come again every `together` values; as many values as
  /// fit: returns how many.
  std::size_t (*stretch)(std::uint8_t* values, std::size_t count, const float* low,
                         const float* scale) noexcept;
  void (*saturate)(ColourPlanes& planes, float factor, float weight) noexcept;
  void (*turn_hue)(ColourPlanes& planes, float turn) noexcept;
  /// Luma into `red`.
  void (*luma)(ColourPlanes& planes) noexcept;
  /// Planes from and to pixels.
  void (*split)(const std::uint8_t* pixels, ColourPlanes& planes) noexcept;
  void (*join)(const ColourPlanes& planes, std::uint8_t* pixels) noexcept;
  /// `rows`: the row above, the row itself, the one below. Neighbours are `step` bytes apart. As
  /// many values as fit vectors: returns how many.
  std::size_t (*sharpen)(const std::uint8_t* const (&rows)[3], std::size_t step, std::uint8_t* out,
                         std::size_t count, float weight) noexcept;
  /// out[i] = sum of weights[k] * rows[k][i], k < `size` (odd), symmetric weights. May write and
  /// read up to `slack` values more.
  void (*blur_down)(const std::uint8_t* const* rows, const float* weights, std::size_t size,
                    float* out, std::size_t count) noexcept;
  /// The same along a row: in[i + k * step]; rounded.
  void (*blur_along)(const float* in, std::size_t step, const float* weights, std::size_t size,
                     std::uint8_t* out, std::size_t count) noexcept;
  /// Where each pixel of a row is read, x and y one behind the other. May write `slack` more.
  void (*places)(const WarpRow& row, float* x, float* y, std::size_t count) noexcept;

  static constexpr std::size_t slack = 64;
  static constexpr std::size_t together = 48;  ///< whole pixels of 1 or 3 channels, whole vectors
};

[[nodiscard]] const ColourLoops& colour_loops(SimdLevel level) noexcept;

#if defined(__x86_64__)
extern const ColourLoops avx2_colours;
extern const ColourLoops avx512_colours;
#elif defined(__aarch64__)
extern const ColourLoops neon_colours;
#endif

}  // namespace fastio
