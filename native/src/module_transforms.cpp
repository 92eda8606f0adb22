// Transforms bound to Python: batches by plans, and the numbers that plans are drawn from.
#include <array>
#include <cstring>
#include <limits>

#include "fastio/philox.h"
#include "fastio/transform.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using PlanArray = nb::ndarray<const std::int32_t, nb::shape<-1, 13>, nb::c_contig, nb::device::cpu>;

/// A compiled function of the user's, and the object that keeps its code in memory.
struct PyFunction {
  PictureCall call;
  nb::object owner;
};

using FunctionHandle = std::optional<nb::handle_t<PyFunction>>;
using Numbers = std::optional<Array<const double, 2>>;

/// What both functions are told about the batch.
struct Request {
  const PlanArray& plan;
  const Array<std::uint8_t, 4>& out;
  const StatusArray& status;
  const Checksums& checksums;
  int filter;
  const nb::bytes& fill;
  bool planar;
  bool grey;
  bool fast;
  std::size_t max_pixels;
  const FunctionHandle& function;
  const Numbers& numbers;
};

nb::object borrowed(const FunctionHandle& function) {
  return function ? nb::borrow(*function) : nb::object();
}

[[noreturn]] void refuse(const std::string& text) {
  throw nb::value_error(text.c_str());
}

TransformOptions options_of(const Request& request, std::size_t channels) {
  if (request.filter < 0 || request.filter > static_cast<int>(Filter::nearest)) {
    refuse("filter is " + std::to_string(request.filter) + ", expected 0 to 5");
  }
  if (channels != 1 && channels != 3 && channels != 4) {
    refuse("out has " + std::to_string(channels) +
           " channels, expected 1 (grey), 3 (RGB) or 4 (RGBA)");
  }
  if (request.grey && channels == 4) refuse("grey goes with 1 or 3 channels, out has 4");
  if (request.fill.size() != channels) {
    refuse("fill has " + std::to_string(request.fill.size()) + " values, out has " +
           std::to_string(channels) + " channels");
  }
  TransformOptions options{static_cast<Filter>(request.filter),
                           {},
                           request.planar,
                           request.grey,
                           request.fast,
                           request.max_pixels};
  std::memcpy(options.fill.data(), request.fill.c_str(), channels);
  return options;
}

/// The plans by copy, so that nobody changes them under a running batch.
std::unique_ptr<Plan[]> plans_of(const PlanArray& array, const Picture& row) {
  const std::size_t count = array.shape(0);
  auto plans = std::make_unique<Plan[]>(count);
  if (count > 0) std::memcpy(plans.get(), array.data(), count * sizeof(Plan));
  for (std::size_t i = 0; i < count; ++i) {
    const char* fault = plan_fault(plans[i], row.height, row.width);
    if (fault != nullptr) refuse("plan " + std::to_string(i) + ": " + fault);
  }
  return plans;
}

PictureFunction function_of(const Request& request, std::size_t count) {
  if (!request.function) return {};
  if (!request.numbers) refuse("function goes with numbers, one row for each picture");
  expect_length("numbers", request.numbers->shape(0), count);
  return {nb::cast<const PyFunction&>(*request.function).call, request.numbers->data(),
          request.numbers->shape(1)};
}

/// The batch without intervals; refuses what does not fit.
TransformBatch batch_of(const Request& request, const Spans& spans) {
  auto bytes = resolve(spans);
  const std::size_t count = spans.size();
  const auto& out = request.out;
  expect_length("plan", request.plan.shape(0), count);
  expect_length("out", out.shape(0), count);
  expect_length("status", request.status.size(), count);
  const std::size_t first = request.planar ? 2 : 1;
  const std::size_t channels = out.shape(request.planar ? 1 : 3);
  const TransformOptions options = options_of(request, channels);
  const Picture row{out.data(), out.shape(first), out.shape(first + 1), static_cast<int>(channels)};
  auto plans = plans_of(request.plan, row);
  return {std::move(bytes),
          nullptr,
          std::move(plans),
          options,
          {row, checked(request.checksums, count), request.status.data()},
          function_of(request, count)};
}

PyJob decode_transformed(const Spans& spans, const PlanArray& plan,
                         const Array<std::uint8_t, 4>& out, const StatusArray& status,
                         const PoolHandle& pool, bool verify, int filter, const nb::bytes& fill,
                         bool planar, bool grey, bool fast, const FunctionHandle& function,
                         const Numbers& numbers, std::optional<std::size_t> max_pixels) {
  const Checksums checksums = spans.checksums(verify);
  auto batch = batch_of({plan, out, status, checksums, filter, fill, planar, grey, fast,
                         max_pixels.value_or(any_pixels), function, numbers},
                        spans);
  nb::object places;
  if (const auto intervals = spans.intervals()) {
    expect_length("intervals", intervals->size(), spans.size());
    batch.intervals = resolve(*intervals);
    places = intervals->buffers;
  }
  const std::size_t threads = pool ? nb::cast<PyPool&>(*pool).used() : 1;
  const std::size_t bands = bands_for(batch, spans.size(), threads);
  auto task = bands == 1 ? transform_task(std::move(batch))
                         : banded_transform_task(std::move(batch), spans.size(), bands);
  return begin(std::move(task), {spans.size() * bands, 1}, pool,
               keep(spans.buffers, places, checksums, out, status, borrowed(function), numbers));
}

PyJob gather_transformed(const Spans& spans, const PlanArray& plan,
                         const Array<std::uint8_t, 4>& out, const StatusArray& status,
                         const PoolHandle& pool, bool verify, int filter, const nb::bytes& fill,
                         bool planar, bool grey, std::size_t height, std::size_t width,
                         const FunctionHandle& function, const Numbers& numbers) {
  if (height > static_cast<std::size_t>(longest_side) ||
      width > static_cast<std::size_t>(longest_side)) {
    refuse("rows of " + std::to_string(height) + " x " + std::to_string(width) +
           " pixels are too large, a side has at most " + std::to_string(longest_side));
  }
  const Checksums checksums = spans.checksums(verify);
  auto batch = batch_of({plan, out, status, checksums, filter, fill, planar, grey, false,
                         any_pixels, function, numbers},
                        spans);
  const Picture& row = batch.rows.first;
  const std::size_t grain = grain_for(row.height * row.row_bytes());
  return begin(transform_raw_task(std::move(batch), height, width), {spans.size(), grain}, pool,
               keep(spans.buffers, checksums, out, status, borrowed(function), numbers));
}

void philox(std::uint64_t seed, std::uint32_t epoch, const Int64s& indices,
            const Array<double, 2>& out) {
  expect_length("out", out.shape(0), indices.size());
  const nb::gil_scoped_release released;
  uniform({seed, epoch}, {indices.data(), indices.size()}, {out.data(), out.size()});
}

#define SPANS_AND_PLAN                                                                         \
  "spans: Spans, plan: NDArray[np.int32], out: NDArray[np.uint8], status: NDArray[np.int32], " \
  "pool: ThreadPool | None = None, *, verify: bool = True, filter: int, fill: bytes, "         \
  "planar: bool = False, grey: bool = False, "                                                 \
  "function: PictureFunction | None = None, numbers: NDArray[np.float64] | None = None"

}  // namespace

void bind_transforms(nb::module_& m) {
  nb::class_<PyFunction>(
      m, "PictureFunction",
      "A C function that is called with each finished picture, on the threads, without the GIL.\n\n"
      "``address`` is that of int32 f(uint8* pixels, int64 height, int64 width, int64 channels,\n"
      "const double* numbers, int64 count): it changes height x width x channels bytes in place, "
      "by\n"
      "the row of ``numbers`` that belongs to the picture. Anything but 0 makes it FAILED. "
      "``owner``\n"
      "is kept as long as the function may be called.")
      .def(
          "__init__",
          [](PyFunction* self, std::uintptr_t address, nb::object owner) {
            new (self) PyFunction{reinterpret_cast<PictureCall>(address), std::move(owner)};
          },
          "address"_a, "owner"_a);
  m.def("decode_transformed", &decode_transformed, "spans"_a, "plan"_a.noconvert(),
        "out"_a.noconvert(), "status"_a.noconvert(), "pool"_a = nb::none(), nb::kw_only(),
        "verify"_a = true, "filter"_a, "fill"_a, "planar"_a = false, "grey"_a = false,
        "fast"_a = false, "function"_a = nb::none(), "numbers"_a.noconvert() = nb::none(),
        "max_pixels"_a = nb::none(),
        nb::sig("def decode_transformed(" SPANS_AND_PLAN
                ", fast: bool = False, max_pixels: int | None = None) -> Job"),
        "Crop, resample, place and mirror each picture into ``out[i]`` while it is decoded.\n\n"
        "``plan`` is (n, 13): box x y w h, virtual w h, window x y w h, place x y, flip. The\n"
        "box of the picture becomes the virtual size (Pillow's resize to the bit); the window\n"
        "of that goes to (place x, place y) of the row, ``fill`` around it, and the row is\n"
        "mirrored where flip is 1. ``out`` is (n, H, W, C) or, ``planar``, (n, C, H, W).\n"
        "``filter``: 0 bilinear, 1 bicubic, 2 box, 3 lanczos, 4 hamming, 5 nearest. ``grey``\n"
        "writes the result's luma to all channels. ``fast`` lets libjpeg shrink JPEGs to a half,\n"
        "quarter or eighth first, where at least twice the virtual size is left: other pixels,\n"
        "but nearly so. A box that leaves its picture is\n"
        "BAD_SHAPE. Of a JPEG nothing behind the last row needed is decoded: damage there is\n"
        "seen by the checksums only (``verify``). ``spans.intervals`` are used where there are\n"
        "any.\n"
        "``function`` is called with each picture, and its row of ``numbers`` (n, k). A picture\n"
        "whose header announces more than ``max_pixels`` is TOO_LARGE.");
  m.def("gather_transformed", &gather_transformed, "spans"_a, "plan"_a.noconvert(),
        "out"_a.noconvert(), "status"_a.noconvert(), "pool"_a = nb::none(), nb::kw_only(),
        "verify"_a = true, "filter"_a, "fill"_a, "planar"_a = false, "grey"_a = false, "height"_a,
        "width"_a, "function"_a = nb::none(), "numbers"_a.noconvert() = nb::none(),
        nb::sig("def gather_transformed(" SPANS_AND_PLAN ", height: int, width: int) -> Job"),
        "The same for raw pixels, height x width x C bytes a span; another size is BAD_SHAPE.\n"
        "With ``grey`` a span has 1 or 3 channels, whatever ``out`` has.");
  m.def("philox", &philox, "seed"_a, "epoch"_a, "indices"_a.noconvert(), "out"_a.noconvert(),
        nb::sig("def philox(seed: int, epoch: int, indices: NDArray[np.int64], "
                "out: NDArray[np.float64]) -> None"),
        "Uniform doubles in [0, 1) of 53 bits: ``out[i, j]`` depends on seed (below 2**64),\n"
        "epoch (below 2**32), ``indices[i]`` and j alone, on every machine.");
}

}  // namespace fastio::python
