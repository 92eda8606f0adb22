// Transforms bound to Python: batches by plans, and the numbers that plans are drawn from.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <limits>

#include "core/random.h"
#include "python/row_work.h"
#include "transform/transform.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using PlanArray = nb::ndarray<const std::int32_t, nb::shape<-1, 13>, nb::c_contig, nb::device::cpu>;

using ProgramArray =
    nb::ndarray<const double, nb::shape<-1, -1, 14>, nb::c_contig, nb::device::cpu>;
using Programs = std::optional<ProgramArray>;

/// How pictures are transformed, whatever their batch.
struct Wishes {
  PlanArray plan;
  int filter;
  nb::bytes fill;
  bool planar;
  bool grey;
  bool fast;
  std::size_t max_pixels;
  PassOrder order;
  std::optional<RawPixels> stored;  // of raw pictures
  Programs colours;
};

[[noreturn]] void refuse(const std::string& text) {
  throw nb::value_error(text.c_str());
}

TransformOptions options_of(const Wishes& wishes, std::size_t channels) {
  if (wishes.filter < 0 || wishes.filter > static_cast<int>(Filter::nearest)) {
    refuse("filter is " + std::to_string(wishes.filter) + ", expected 0 to 5");
  }
  if (channels != 1 && channels != 3 && channels != 4) {
    refuse("out has " + std::to_string(channels) +
           " channels, expected 1 (grey), 3 (RGB) or 4 (RGBA)");
  }
  if (wishes.grey && channels == 4) refuse("grey goes with 1 or 3 channels, out has 4");
  if (wishes.fill.size() != channels) {
    refuse("fill has " + std::to_string(wishes.fill.size()) + " values, out has " +
           std::to_string(channels) + " channels");
  }
  TransformOptions options{static_cast<Filter>(wishes.filter),
                           {},
                           wishes.planar,
                           wishes.grey,
                           wishes.fast,
                           wishes.max_pixels,
                           wishes.order};
  std::memcpy(options.fill.data(), wishes.fill.c_str(), channels);
  return options;
}

/// The height of row i.
std::size_t height_of(const Picture& row, const std::int64_t* places, std::size_t i) {
  return places == nullptr ? row.height : static_cast<std::size_t>(places[i + 1] - places[i]);
}

/// The programs by copy, so that nobody changes them under a running batch.
ColourPrograms programs(const Programs& colours, std::size_t first, const Picture& row,
                        std::size_t count, const std::int64_t* places = nullptr) {
  const std::size_t steps = colours ? colours->shape(1) : 0;
  if (steps == 0) return {};
  auto copy = std::make_unique<ColourWork[]>(count * steps);
  if (count > 0) {
    std::memcpy(copy.get(), colours->data() + 14 * first * steps,
                count * steps * sizeof(ColourWork));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const char* fault = colour_fault({copy.get() + i * steps, steps}, height_of(row, places, i),
                                     row.width, row.channels);
    if (fault != nullptr) refuse("colours " + std::to_string(first + i) + ": " + fault);
  }
  return {std::move(copy), steps};
}

/// Pictures, encoded or raw, on their way through transforms.
class TransformedRows final : public RowWork {
 public:
  TransformedRows(const Spans& spans, bool verify, Wishes wishes)
      : RowWork(spans, verify), wishes_(std::move(wishes)), intervals_(spans.intervals()) {
    expect_length("plan", wishes_.plan.shape(0), size());
    if (wishes_.colours) expect_length("colours", wishes_.colours->shape(0), size());
    if (!wishes_.stored) return;
    const auto& [height, width, planar] = *wishes_.stored;
    if (std::max(height, width) > static_cast<std::size_t>(longest_side)) {
      refuse("rows of " + std::to_string(height) + " x " + std::to_string(width) +
             " pixels are too large, a side has at most " + std::to_string(longest_side));
    }
  }

  [[nodiscard]] std::pair<std::unique_ptr<fastio::Task>, Cut> task(
      std::span<const RowPart> parts, std::size_t threads) const override {
    const RowPart& part = parts.front();
    TransformBatch all = batch(part);
    if (wishes_.stored) {
      return {transform_raw_task(std::move(all), *wishes_.stored),
              Cut{part.count, grain_for(part.row_bytes)}};
    }
    const std::size_t bands = bands_for(all, part.count, threads);
    if (bands == 1) return {transform_task(std::move(all)), Cut{part.count, 1}};
    return {banded_transform_task(std::move(all), part.count, bands), Cut{part.count * bands, 1}};
  }

  /// These samples on their way into their rows.
  [[nodiscard]] TransformBatch batch(const RowPart& part) const {
    if (part.shape.size() != 3) refuse("rows of pictures have three axes");
    const std::size_t first = wishes_.planar ? 1 : 0;
    const std::size_t channels = part.shape[wishes_.planar ? 0 : 2];
    const TransformOptions options = options_of(wishes_, channels);
    const Picture row{part.out, part.shape[first], part.shape[first + 1],
                      static_cast<int>(channels)};
    TransformBatch batch{resolve(spans(), part.first, part.count),
                         nullptr,
                         nullptr,
                         options,
                         {row, checksums(part), part.status},
                         programs(wishes_.colours, part.first, row, part.count, part.places)};
    if (part.places != nullptr) {
      batch.places = std::make_unique<std::size_t[]>(part.count + 1);
      std::copy_n(part.places, part.count + 1, batch.places.get());
    }
    batch.plans = plans(part, row, batch.colours);
    if (intervals_ && !wishes_.stored) {
      batch.intervals = resolve(*intervals_, part.first, part.count);
    }
    return batch;
  }

  [[nodiscard]] const Wishes& wishes() const { return wishes_; }

 private:
  /// The plans by copy, so that nobody changes them under a running batch.
  [[nodiscard]] std::unique_ptr<Plan[]> plans(const RowPart& part, const Picture& row,
                                              const ColourPrograms& colours) const {
    auto plans = std::make_unique<Plan[]>(part.count);
    if (part.count > 0) {
      std::memcpy(plans.get(), wishes_.plan.data() + 13 * part.first, part.count * sizeof(Plan));
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      const auto [height, width] =
          first_size(colours, i, height_of(row, part.places, i), row.width);
      const char* fault = plan_fault(plans[i], height, width);
      if (fault != nullptr) refuse("plan " + std::to_string(part.first + i) + ": " + fault);
    }
    return plans;
  }

  const Wishes wishes_;
  const std::optional<Spans> intervals_;
};

/// Several ways of transforming the same pictures, which are decoded once.
class ViewRows final : public RowWork {
 public:
  /// `views` are TransformedRows of the same spans.
  explicit ViewRows(std::vector<nb::object> views)
      : RowWork(at(views, 0).spans(), false, views.size()), objects_(std::move(views)) {
    const auto& stored = at(objects_, 0).wishes().stored;
    for (std::size_t v = 0; v < objects_.size(); ++v) {
      views_.push_back(&at(objects_, v));
      expect_length("views", views_.back()->size(), size());
      if (views_.back()->wishes().stored != stored) refuse("views of pictures of several sizes");
      if (views_.back()->wishes().fast) refuse("views are exact: fast goes with one alone");
    }
  }

  [[nodiscard]] std::pair<std::unique_ptr<fastio::Task>, Cut> task(std::span<const RowPart> parts,
                                                                   std::size_t) const override {
    std::vector<TransformBatch> batches;
    std::size_t row_bytes = 0;
    for (std::size_t v = 0; v < views_.size(); ++v) {
      batches.push_back(views_[v]->batch(parts[v]));
      row_bytes += parts[v].row_bytes;
    }
    const std::size_t count = parts.front().count;
    const auto& stored = views_.front()->wishes().stored;
    if (!stored) return {views_task(std::move(batches)), Cut{count, 1}};
    return {raw_views_task(std::move(batches), *stored), Cut{count, grain_for(row_bytes)}};
  }

 private:
  static const TransformedRows& at(const std::vector<nb::object>& views, std::size_t v) {
    if (v >= views.size()) refuse("no views");
    const auto* rows = dynamic_cast<const TransformedRows*>(&nb::cast<const RowWork&>(views[v]));
    if (rows == nullptr) refuse("views are those of transformed_rows");
    return *rows;
  }

  const std::vector<nb::object> objects_;  // keeps the views
  std::vector<const TransformedRows*> views_;
};

PassOrder order_of(bool cheaper_first) {
  return cheaper_first ? PassOrder::cheaper_first : PassOrder::horizontal_first;
}

/// Begins the work for rows of Python's, of each view one array.
PyJob begin_rows(std::shared_ptr<RowWork> work, const std::vector<Array<std::uint8_t, 4>>& outs,
                 const StatusArray& status, const PoolHandle& pool) {
  const std::size_t count = work->size();
  expect_length("outs", outs.size(), work->views);
  expect_length("status", status.size(), count);
  std::vector<std::array<std::size_t, 3>> shapes;
  for (const auto& out : outs) {
    expect_length("out", out.shape(0), count);
    shapes.push_back({out.shape(1), out.shape(2), out.shape(3)});
  }
  std::vector<RowPart> parts;
  for (std::size_t v = 0; v < outs.size(); ++v) {
    const auto& shape = shapes[v];
    parts.push_back(
        {0, count, outs[v].data(), shape, shape[0] * shape[1] * shape[2], status.data()});
  }
  const std::size_t threads = pool ? nb::cast<PyPool&>(*pool).used() : 1;
  auto [task, cut] = work->task(parts, threads);
  return begin(std::move(task), cut, pool, keep(std::move(work), outs, status));
}

/// Begins the work for rows of patches, which are of several heights.
PyJob fill_patches(nb::object rows, const Array<std::uint8_t, 3>& out, const Int64s& places,
                   const StatusArray& status, const PoolHandle& pool) {
  const auto* work = dynamic_cast<const TransformedRows*>(&nb::cast<const RowWork&>(rows));
  if (work == nullptr || work->wishes().planar) refuse("rows are those of transformed_rows");
  const std::size_t count = work->size();
  expect_length("places", places.size(), count + 1);
  expect_length("status", status.size(), count);
  const std::int64_t* at = places.data();
  for (std::size_t i = 0; i < count; ++i) {
    if (at[i] < at[i + 1]) continue;
    refuse("places do not ascend");
  }
  if (at[0] != 0) refuse("places do not begin with 0");
  expect_length("out", out.shape(0), static_cast<std::size_t>(at[count]));
  const std::array<std::size_t, 3> shape{out.shape(0), out.shape(1), out.shape(2)};
  const RowPart part{
      0, count, out.data(), shape, out.size() / std::max<std::size_t>(count, 1), status.data(), at};
  const std::size_t threads = pool ? nb::cast<PyPool&>(*pool).used() : 1;
  auto [task, cut] = work->task({&part, 1}, threads);
  return begin(std::move(task), cut, pool, keep(std::move(rows), out, status));
}

PyJob fill_views(std::vector<nb::object> views, const std::vector<Array<std::uint8_t, 4>>& outs,
                 const StatusArray& status, const PoolHandle& pool) {
  return begin_rows(std::make_shared<ViewRows>(std::move(views)), outs, status, pool);
}

PyJob decode_transformed(const Spans& spans, const PlanArray& plan,
                         const Array<std::uint8_t, 4>& out, const StatusArray& status,
                         const PoolHandle& pool, bool verify, int filter, const nb::bytes& fill,
                         bool planar, bool grey, bool fast, std::optional<std::size_t> max_pixels,
                         bool cheaper_first, const Programs& colours) {
  Wishes wishes{plan,
                filter,
                fill,
                planar,
                grey,
                fast,
                max_pixels.value_or(any_pixels),
                order_of(cheaper_first),
                {},
                colours};
  return begin_rows(std::make_shared<TransformedRows>(spans, verify, std::move(wishes)), {out},
                    status, pool);
}

PyJob gather_transformed(const Spans& spans, const PlanArray& plan,
                         const Array<std::uint8_t, 4>& out, const StatusArray& status,
                         const PoolHandle& pool, bool verify, int filter, const nb::bytes& fill,
                         bool planar, bool grey, std::size_t height, std::size_t width,
                         bool from_planes, bool cheaper_first, const Programs& colours) {
  Wishes wishes{plan,
                filter,
                fill,
                planar,
                grey,
                false,
                any_pixels,
                order_of(cheaper_first),
                RawPixels{height, width, from_planes},
                colours};
  return begin_rows(std::make_shared<TransformedRows>(spans, verify, std::move(wishes)), {out},
                    status, pool);
}

std::unique_ptr<RowWork> transformed_rows(const Spans& spans, const PlanArray& plan, bool verify,
                                          int filter, const nb::bytes& fill, bool planar, bool grey,
                                          bool fast, std::optional<std::size_t> max_pixels,
                                          bool cheaper_first,
                                          std::optional<std::pair<std::size_t, std::size_t>> stored,
                                          bool from_planes, const Programs& colours) {
  Wishes wishes{plan,
                filter,
                fill,
                planar,
                grey,
                fast,
                max_pixels.value_or(any_pixels),
                order_of(cheaper_first),
                {},
                colours};
  if (stored) wishes.stored = RawPixels{stored->first, stored->second, from_planes};
  return std::make_unique<TransformedRows>(spans, verify, std::move(wishes));
}

PyJob colour_rows(const Array<std::uint8_t, 4>& pictures, const ProgramArray& colours,
                  const StatusArray& status, const PoolHandle& pool, bool planar) {
  const std::size_t count = pictures.shape(0);
  expect_length("colours", colours.shape(0), count);
  expect_length("status", status.size(), count);
  const std::size_t first = planar ? 2 : 1;
  const Picture row{pictures.data(), pictures.shape(first), pictures.shape(first + 1),
                    static_cast<int>(pictures.shape(planar ? 1 : 3))};
  ColouredRows rows{row, planar, programs(colours, 0, row, count), status.data()};
  for (std::size_t i = 0; i < count; ++i) {
    if (!begins_with_canvas(rows.colours.of(i))) continue;
    refuse("colours " + std::to_string(i) + ": pictures that lie in memory keep their size");
  }
  return begin(colour_task(std::move(rows)), {count, 1}, pool, keep(pictures, status));
}

void copy_quantiles(const Array<float, 1>& out) {
  expect_length("out", out.shape(0), count_of_quantiles);
  const auto& quantiles = normal_quantiles();
  std::copy(quantiles.begin(), quantiles.end(), out.data());
}

void philox(std::uint64_t seed, std::uint32_t epoch, const Int64s& indices,
            const Array<double, 2>& out) {
  expect_length("out", out.shape(0), indices.size());
  const WithoutGil released;
  uniform({seed, epoch}, {indices.data(), indices.size()}, {out.data(), out.size()});
}

#define SPANS_AND_PLAN                                                                         \
  "spans: Spans, plan: NDArray[np.int32], out: NDArray[np.uint8], status: NDArray[np.int32], " \
  "pool: ThreadPool | None = None, *, verify: bool = True, filter: int, fill: bytes, "         \
  "planar: bool = False, grey: bool = False, "                                                 \
  "cheaper_first: bool = True, colours: NDArray[np.float64] | None = None"

}  // namespace

void bind_transforms(nb::module_& m) {
  m.def("decode_transformed", &decode_transformed, "spans"_a, "plan"_a.noconvert(),
        "out"_a.noconvert(), "status"_a.noconvert(), "pool"_a = nb::none(), nb::kw_only(),
        "verify"_a = true, "filter"_a, "fill"_a, "planar"_a = false, "grey"_a = false,
        "fast"_a = false, "max_pixels"_a = nb::none(), "cheaper_first"_a = true,
        "colours"_a.noconvert() = nb::none(),
        nb::sig("def decode_transformed(" SPANS_AND_PLAN
                ", fast: bool = False, max_pixels: int | None = None) -> Job"),
        "Crop, resample, place and mirror each picture into ``out[i]`` while it is decoded.\n\n"
        "``plan`` is (n, 13): box x y w h, virtual w h, window x y w h, place x y, flip. The\n"
        "box of the picture becomes the virtual size (Pillow's resize to the bit: that of Pillow\n"
        "13, or without ``cheaper_first`` of those before it, which always begin with the\n"
        "horizontal pass); the window\n"
        "of that goes to (place x, place y) of the row, ``fill`` around it, and the row is\n"
        "mirrored where flip is 1. ``out`` is (n, H, W, C) or, ``planar``, (n, C, H, W).\n"
        "``filter``: 0 bilinear, 1 bicubic, 2 box, 3 lanczos, 4 hamming, 5 nearest. ``grey``\n"
        "writes the result's luma to all channels. ``fast`` lets libjpeg shrink JPEGs to a half,\n"
        "quarter or eighth first, where at least twice the virtual size is left: other pixels,\n"
        "but nearly so. A box that leaves its picture is\n"
        "BAD_SHAPE. Of a JPEG nothing behind the last row needed is decoded: damage there is\n"
        "seen by the checksums only (``verify``). ``spans.intervals`` are used where there are\n"
        "any.\n"
        "The steps of each picture's row of ``colours`` (n, steps, 14) then run, see\n"
        "``colour_rows``. A picture\n"
        "whose header announces more than ``max_pixels`` is TOO_LARGE.");
  m.def("gather_transformed", &gather_transformed, "spans"_a, "plan"_a.noconvert(),
        "out"_a.noconvert(), "status"_a.noconvert(), "pool"_a = nb::none(), nb::kw_only(),
        "verify"_a = true, "filter"_a, "fill"_a, "planar"_a = false, "grey"_a = false, "height"_a,
        "width"_a, "from_planes"_a = false, "cheaper_first"_a = true,
        "colours"_a.noconvert() = nb::none(),
        nb::sig("def gather_transformed(" SPANS_AND_PLAN
                ", height: int, width: int, from_planes: bool = False) -> Job"),
        "The same for raw pixels, height x width x C bytes a span or, ``from_planes``,\n"
        "C x height x width; another size is BAD_SHAPE. With ``grey`` a span has 1 or 3 channels,\n"
        "whatever ``out`` has.");
  m.def(
      "transformed_rows", &transformed_rows, "spans"_a, "plan"_a.noconvert(), nb::kw_only(),
      "verify"_a, "filter"_a, "fill"_a, "planar"_a, "grey"_a, "fast"_a, "max_pixels"_a = nb::none(),
      "cheaper_first"_a = true, "stored"_a = nb::none(), "from_planes"_a = false,
      "colours"_a.noconvert() = nb::none(),
      nb::sig("def transformed_rows(spans: Spans, plan: NDArray[np.int32], *, verify: bool, "
              "filter: int, fill: bytes, planar: bool, grey: bool, fast: bool, "
              "max_pixels: int | None = None, cheaper_first: bool = True, "
              "stored: tuple[int, int] | None = None, from_planes: bool = False, "
              "colours: NDArray[np.float64] | None = None) -> RowWork"),
      "Rows as ``decode_transformed`` fills them, or as ``gather_transformed`` does if ``stored``\n"
      "gives the height and width of raw pictures.");
  m.def(
      "colour_rows", &colour_rows, "pictures"_a.noconvert(), "colours"_a.noconvert(),
      "status"_a.noconvert(), "pool"_a = nb::none(), nb::kw_only(), "planar"_a = false,
      nb::sig("def colour_rows(pictures: NDArray[np.uint8], colours: NDArray[np.float64], "
              "status: NDArray[np.int32], pool: ThreadPool | None = None, *, "
              "planar: bool = False) -> Job"),
      "Change pictures where they lie, (n, H, W, C) or, ``planar``, (n, C, H, W), of 1 or 3\n"
      "channels. ``colours`` (n, steps, 14) has each picture's steps: a number of\n"
      "``fastio.transforms.batch.program.Step``, then its amounts. The step CALL has the address\n"
      "of int32 f(uint8* pixels, int64 height, int64 width, int64 channels, const double*\n"
      "numbers, int64 count), which changes height x width x channels bytes in place; anything\n"
      "but 0 makes the picture FAILED. It must not be freed before the job ends.");
  m.def(
      "view_rows",
      [](std::vector<nb::object> views) -> std::unique_ptr<RowWork> {
        return std::make_unique<ViewRows>(std::move(views));
      },
      "views"_a, nb::sig("def view_rows(views: list[RowWork]) -> RowWork"),
      "Several rows of each picture, as these ``transformed_rows`` of the same spans fill them;\n"
      "each picture is decoded once, for the region that all need together.");
  m.def(
      "fill_views", &fill_views, "views"_a, "outs"_a.noconvert(), "status"_a.noconvert(),
      "pool"_a = nb::none(),
      nb::sig("def fill_views(views: list[RowWork], outs: list[NDArray[np.uint8]], "
              "status: NDArray[np.int32], pool: ThreadPool | None = None) -> Job"),
      "The same into ``outs``, an array (n, H, W, C) or (n, C, H, W) for each view. ``status`` is\n"
      "that of the pictures, not OK if one of the views cannot be had.");
  m.def(
      "fill_patches", &fill_patches, "rows"_a, "out"_a.noconvert(), "places"_a.noconvert(),
      "status"_a.noconvert(), "pool"_a = nb::none(),
      nb::sig("def fill_patches(rows: RowWork, out: NDArray[np.uint8], "
              "places: NDArray[np.int64], status: NDArray[np.int32], "
              "pool: ThreadPool | None = None) -> Job"),
      "Fill the lines of ``out`` (lines, pixels of a patch, C): those of picture i begin at\n"
      "``places[i]`` (n + 1,). ``rows`` are transformed_rows whose programs end with a step that\n"
      "cuts patches; lines that a picture has beyond its patches become 0.");
  m.def("normal_quantiles", &copy_quantiles, "out"_a.noconvert(),
        nb::sig("def normal_quantiles(out: NDArray[np.float32]) -> None"),
        "Write the 32,768 magnitudes of the noise of ``colour_rows``, each equally likely.");
  m.def("philox", &philox, "seed"_a, "epoch"_a, "indices"_a.noconvert(), "out"_a.noconvert(),
        nb::sig("def philox(seed: int, epoch: int, indices: NDArray[np.int64], "
                "out: NDArray[np.float64]) -> None"),
        "Uniform doubles in [0, 1) of 53 bits: ``out[i, j]`` depends on seed (below 2**64),\n"
        "epoch (below 2**32), ``indices[i]`` and j alone, on every machine.");
}

}  // namespace fastio::python
