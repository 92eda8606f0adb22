// Pictures bound to Python: written anew, jump tables, frame headers, masks, tables of values.
// Spans go in; one run of bytes and what became of each come out.

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>

#include "jpeg/jpeg.h"
#include "jpeg/jump_points.h"
#include "jpeg/jump_table.h"
#include "pictures/mask.h"
#include "pictures/probe.h"
#include "pictures/transcode.h"
#include "python/module.h"
#include "python/row_work.h"
#include "transform/value_table.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

template <typename T, int dimensions>
using Owned = nb::ndarray<nb::numpy, T, nb::ndim<dimensions>>;

/// An array of its own memory.
template <typename T>
std::pair<T*, nb::capsule> allocate(std::size_t count) {
  T* raw = std::make_unique<T[]>(count).release();
  return {raw, nb::capsule(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); })};
}

/// What one batch became. Filled by the threads of its job, taken once when that is done.
class PyTranscoded {
 public:
  explicit PyTranscoded(std::size_t count)
      : count_(count), results_(std::make_shared<TranscodedBatch>(count)) {}

  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::shared_ptr<TranscodedBatch> begin() {
    if (begun_.exchange(true)) {
      throw std::runtime_error("a batch has been begun with this already");
    }
    return results_;
  }

  nb::tuple take(BufferRing& ring) {
    const SoleUse use(used_, "this batch");
    const std::vector<Transcoded>& all = results_->pictures;
    if (results_->done.load(std::memory_order_acquire) < all.size()) {
      throw std::runtime_error("the batch is not done: wait for it");
    }
    const std::size_t count = all.size();
    std::size_t total = 0;
    std::size_t places = 0;
    for (const Transcoded& each : all) {
      total += each.bytes.size();
      places += each.intervals.size() / sizeof(std::uint32_t);
    }
    ByteArray data = acquire(ring, std::max<std::size_t>(total, 1));
    const auto [sizes, sizes_owner] = allocate<std::int64_t>(count);
    const auto [facts, facts_owner] = allocate<std::int32_t>(5 * count);
    const auto [intervals, intervals_owner] = allocate<std::uint32_t>(places);
    const auto [counts, counts_owner] = allocate<std::uint32_t>(count);
    std::uint8_t* next = data.data();
    std::uint32_t* next_place = intervals;
    for (std::size_t i = 0; i < count; ++i) {
      const Transcoded& each = all[i];
      next = std::ranges::copy(each.bytes.bytes(), next).out;
      sizes[i] = static_cast<std::int64_t>(each.bytes.size());
      const std::int32_t said[] = {static_cast<std::int32_t>(each.status),
                                   static_cast<std::int32_t>(each.outcome), each.shape[0],
                                   each.shape[1], each.shape[2]};
      std::ranges::copy(said, facts + 5 * i);
      counts[i] = static_cast<std::uint32_t>(each.intervals.size() / sizeof(std::uint32_t));
      if (counts[i] > 0) std::memcpy(next_place, each.intervals.bytes().data(), 4 * counts[i]);
      next_place += counts[i];
    }
    std::vector<Transcoded>().swap(results_->pictures);
    return nb::make_tuple(data, Owned<std::int64_t, 1>(sizes, {count}, sizes_owner),
                          Owned<std::int32_t, 2>(facts, {count, 5}, facts_owner),
                          Owned<std::uint32_t, 1>(intervals, {places}, intervals_owner),
                          Owned<std::uint32_t, 1>(counts, {count}, counts_owner));
  }

 private:
  const std::size_t count_;
  const std::shared_ptr<TranscodedBatch> results_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> used_{false};
};

[[noreturn]] void refuse(const std::string& text) {
  throw nb::value_error(text.c_str());
}

void expect_within(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  refuse(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(low) +
         " to " + std::to_string(high));
}

PyJob transcode_images(const Spans& spans, nb::handle_t<PyTranscoded> out, const PoolHandle& pool,
                       std::int32_t bound, std::int32_t side, std::int32_t width,
                       std::int32_t quality, std::int32_t subsampling, std::int32_t restart,
                       std::int32_t resized_restart) {
  expect_within("bound", bound, 0, 3);
  expect_within("side", side, bound == 0 ? 0 : 1, 65'500);
  expect_within("width", width, bound == 3 ? 1 : 0, 65'500);
  expect_within("quality", quality, 1, 100);
  expect_within("subsampling", subsampling, 0, 2);
  expect_within("restart", restart, 0, 65'535);
  expect_within("resized_restart", resized_restart, 0, 65'535);
  auto bytes = resolve(spans);
  auto& results = nb::cast<PyTranscoded&>(out);
  expect_length("out", results.size(), spans.size());
  const TranscodeOptions options{
      static_cast<Bound>(bound),
      side,
      width,
      {quality, static_cast<Subsampling>(subsampling), static_cast<std::uint32_t>(resized_restart)},
      static_cast<std::uint32_t>(restart)};
  return begin(transcode_task(std::move(bytes), options, results.begin()), {spans.size(), 1}, pool,
               keep(spans.buffers));
}

void bind_outcomes(nb::class_<PyTranscoded>& c) {
  const std::pair<const char*, Outcome> names[] = {
      {"RESIZED", Outcome::resized}, {"REWRITTEN", Outcome::rewritten},
      {"FITTING", Outcome::fitting}, {"OTHER", Outcome::other},
      {"UNUSUAL", Outcome::unusual}, {"RICH", Outcome::rich},
  };
  for (const auto& [name, outcome] : names) c.attr(name) = static_cast<int>(outcome);
}

}  // namespace

void bind_transcode(nb::module_& m) {
  nb::class_<PyTranscoded> transcoded(
      m, "Transcoded", "What ``transcode_images`` made of a batch of ``count`` pictures.");
  bind_outcomes(transcoded);
  transcoded.def(nb::init<std::size_t>(), "count"_a)
      .def(
          "take", &PyTranscoded::take, "ring"_a,
          nb::sig("def take(self, ring: BufferRing) -> tuple[NDArray[np.uint8], "
                  "NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32], "
                  "NDArray[np.uint32]]"),
          "Once, after the job: all bytes one after the other in memory of ``ring``; their sizes;\n"
          "(n, 5) status, outcome, height, width and channels; where the restart intervals begin\n"
          "within each picture, one picture after the other; how many of these each has.");
  m.def("transcode_images", &transcode_images, "spans"_a, "out"_a, "pool"_a = nb::none(),
        nb::kw_only(), "bound"_a = 0, "side"_a = 0, "width"_a = 0, "quality"_a = 90,
        "subsampling"_a = 2, "restart"_a = 0, "resized_restart"_a = 0,
        nb::sig("def transcode_images(spans: Spans, out: Transcoded, "
                "pool: ThreadPool | None = None, *, bound: int = 0, side: int = 0, width: int = 0, "
                "quality: int = 90, subsampling: int = 2, restart: int = 0, "
                "resized_restart: int = 0) -> Job"),
        "Write pictures anew. ``bound`` 1 makes the short side at most ``side`` pixels, 2 the\n"
        "long one, 3 makes JPEGs ``side`` pixels high and ``width`` wide; ``subsampling`` is 0\n"
        "for 4:4:4, 1 for 4:2:2, 2 for 4:2:0; ``restart`` puts markers every so many MCUs into\n"
        "JPEGs that are small enough, losslessly, and ``resized_restart`` into those that are\n"
        "resized. The\n"
        "outcome is RESIZED or REWRITTEN, or one of FITTING (nothing to do), OTHER (another\n"
        "kind), UNUSUAL (CMYK, 12 bits, bytes behind the picture), RICH (a PNG that a JPEG\n"
        "cannot hold): these are kept as they are.");
}

// Jump tables as Python sees them: spans in, one run of words and what became of each out.

namespace {

template <typename T>
Owned<T, 1> allocate_row(std::size_t count) {
  const auto [raw, owner] = allocate<T>(count);
  return Owned<T, 1>(raw, {count}, owner);
}

/// What was noted of one batch. Filled by the threads of its job, taken when that is done.
class PyJumpTables {
 public:
  explicit PyJumpTables(std::size_t count) : batch_(std::make_shared<NotedBatch>(count)) {}

  [[nodiscard]] std::size_t size() const { return batch_->pictures.size(); }
  [[nodiscard]] std::shared_ptr<NotedBatch> begin() {
    if (begun_.exchange(true)) {
      throw std::runtime_error("a batch has been begun with this already");
    }
    return batch_;
  }

  [[nodiscard]] nb::tuple take() const {
    const std::vector<NotedPoints>& pictures = batch_->pictures;
    const std::size_t count = pictures.size();
    if (batch_->done.load(std::memory_order_acquire) < count) {
      throw std::runtime_error("the batch is not done: wait for it");
    }
    std::size_t total = 0;
    for (const NotedPoints& picture : pictures) total += picture.table.size();
    const auto words = allocate_row<std::uint32_t>(total / sizeof(std::uint32_t));
    const auto counts = allocate_row<std::uint32_t>(count);
    const auto status = allocate_row<std::int32_t>(count);
    auto* next = reinterpret_cast<std::uint8_t*>(words.data());
    for (std::size_t i = 0; i < count; ++i) {
      const NotedPoints& picture = pictures[i];
      next = std::ranges::copy(picture.table.bytes(), next).out;
      counts.data()[i] = static_cast<std::uint32_t>(picture.table.size() / sizeof(std::uint32_t));
      status.data()[i] = static_cast<std::int32_t>(picture.status);
    }
    return nb::make_tuple(words, counts, status);
  }

 private:
  const std::shared_ptr<NotedBatch> batch_;
  std::atomic<bool> begun_{false};
};

PyJob note_points(const Spans& spans, nb::handle_t<PyJumpTables> out, const PoolHandle& pool,
                  std::int64_t spacing) {
  if (spacing < 1 || static_cast<std::size_t>(spacing) > ScanGrid::most_spacing) {
    throw nb::value_error(("spacing is " + std::to_string(spacing) + ", expected 1 to " +
                           std::to_string(ScanGrid::most_spacing))
                              .c_str());
  }
  auto bytes = resolve(spans);
  auto& tables = nb::cast<PyJumpTables&>(out);
  expect_length("out", tables.size(), spans.size());
  // A thread takes as many as keep several scans under way, of what others wait for a little.
  constexpr std::size_t bytes_at_a_time = 2 << 20;
  constexpr std::size_t most_at_a_time = 64;
  std::size_t total = 1;
  for (const Bytes each : std::span(bytes.get(), spans.size())) total += each.size();
  const std::size_t grain =
      std::clamp<std::size_t>(spans.size() * bytes_at_a_time / total, 1, most_at_a_time);
  return begin(
      note_points_task(std::move(bytes), static_cast<std::size_t>(spacing), tables.begin()),
      {spans.size(), grain}, pool, keep(spans.buffers));
}

nb::object damage_place(const Array<const std::uint8_t, 1>& file) {
  JpegDecoder decoder;
  DamagePlace place;
  if (!decoder.find_damage({file.data(), file.size()}, place)) return nb::none();
  return nb::make_tuple(place.byte, place.row, place.rows);
}

}  // namespace

void bind_note_points(nb::module_& m) {
  nb::class_<PyJumpTables>(m, "JumpTables", "What ``note_points`` noted of ``count`` pictures.")
      .def(nb::init<std::size_t>(), "count"_a)
      .def("take", &PyJumpTables::take,
           nb::sig("def take(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], "
                   "NDArray[np.int32]]"),
           "After the job: the words of all tables, one after the other; how many each picture\n"
           "has; status.");
  m.def("note_points", &note_points, "spans"_a, "out"_a, "pool"_a = nb::none(), nb::kw_only(),
        "spacing"_a = 8,
        nb::sig("def note_points(spans: Spans, out: JumpTables, pool: ThreadPool | None = None, "
                "*, spacing: int = 8) -> Job"),
        "Read all codes of baseline JPEGs and note where about every ``spacing``-th MCU begins:\n"
        "words for ``Spans.intervals``, by which decoders start there. Other pictures have none,\n"
        "nor have damaged ones, whose status says so.");
  m.def("damage_place", &damage_place, "file"_a.noconvert(),
        nb::sig("def damage_place(file: NDArray[np.uint8]) -> tuple[int, int, int] | None"),
        "Where the codes of a damaged baseline JPEG end to make sense: byte of the file, row of\n"
        "MCUs (from 0; their number for what is behind the last), number of rows. None where\n"
        "that is not known.");
}

// What the frame headers of JPEGs say, counted for Python.

namespace {

std::tuple<std::size_t, std::size_t, std::size_t> count_jpegs(const Spans& spans) {
  const auto files = resolve(spans);
  const WithoutGil released;
  std::size_t jpegs = 0;
  std::size_t progressive = 0;
  std::size_t inks = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    JpegFrame frame{};
    if (!read_jpeg_frame(files[i], frame)) continue;
    ++jpegs;
    if (frame.is_progressive) ++progressive;
    if (frame.components == 4) ++inks;
  }
  return {jpegs, progressive, inks};
}

}  // namespace

void bind_jpeg_frames(nb::module_& m) {
  m.def("count_jpegs", &count_jpegs, "spans"_a,
        nb::sig("def count_jpegs(spans: Spans) -> tuple[int, int, int]"),
        "How many spans are JPEGs; of these, how many are progressive, and how many have four\n"
        "components (CMYK, YCCK). Headers alone are read.");
}

// Masks bound to Python.

namespace {

using PlanArray = nb::ndarray<const std::int32_t, nb::shape<-1, 13>, nb::c_contig, nb::device::cpu>;
using SizeArray = nb::ndarray<const std::int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using NumberArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
using MoveArray = nb::ndarray<const double, nb::shape<-1, -1, 14>, nb::c_contig, nb::device::cpu>;

/// Masks on their way into rows of numbers.
class NumberRows final : public RowWork {
 public:
  struct Wishes {
    std::optional<PlanArray> plan;
    std::optional<SizeArray> sizes;
    std::size_t fill;
    bool planar;
    std::size_t max_pixels;
    std::optional<MoveArray> moves;
  };

  NumberRows(const Spans& spans, bool verify, Wishes wishes)
      : RowWork(spans, verify), wishes_(std::move(wishes)) {
    if (wishes_.plan) expect_length("plan", wishes_.plan->shape(0), size());
    if (wishes_.sizes) expect_length("sizes", wishes_.sizes->shape(0), size());
    if (wishes_.moves) expect_length("moves", wishes_.moves->shape(0), size());
  }

  [[nodiscard]] std::pair<std::unique_ptr<fastio::Task>, Cut> task(std::span<const RowPart> parts,
                                                                   std::size_t) const override {
    const RowPart& part = parts.front();
    const NumberRow row = row_of(part);
    const std::size_t largest = row.number_bytes == 1 ? 0xFF : 0xFFFF;
    if (wishes_.fill > largest) {
      refuse("fill is " + std::to_string(wishes_.fill) + ", out holds at most " +
             std::to_string(largest));
    }
    MaskBatch batch{resolve(spans(), part.first, part.count),
                    nullptr,
                    nullptr,
                    {row, static_cast<std::uint16_t>(wishes_.fill), checksums(part), part.status},
                    wishes_.max_pixels};
    if (wishes_.moves) batch.moves = moves(part, row, largest);
    if (wishes_.plan) batch.plans = plans(part, row, batch.moves);
    if (wishes_.sizes) {
      batch.sizes = std::make_unique<MaskSize[]>(part.count);
      std::copy_n(reinterpret_cast<const MaskSize*>(wishes_.sizes->data()) + part.first, part.count,
                  batch.sizes.get());
    }
    // Decoding is some ten times the work of copying.
    return {mask_task(std::move(batch)), Cut{part.count, grain_for(8 * row.bytes())}};
  }

 private:
  /// The first row: (H, W), (H, W, C) or, planar, (C, H, W).
  [[nodiscard]] NumberRow row_of(const RowPart& part) const {
    if (part.shape.size() != 2 && part.shape.size() != 3) {
      refuse("out: expected 3 or 4 dimensions");
    }
    const bool has_colors = part.shape.size() == 3;
    const std::size_t first = wishes_.planar && has_colors ? 1 : 0;
    const std::size_t channels = has_colors ? part.shape[wishes_.planar ? 0 : 2] : 1;
    if (channels < 1 || channels > 4) {
      refuse("out has " + std::to_string(channels) + " channels, expected 1 to 4");
    }
    const std::size_t height = part.shape[first], width = part.shape[first + 1];
    const std::size_t numbers = height * width * channels;
    return {part.out,      height, width, channels, numbers > 0 ? part.row_bytes / numbers : 1,
            wishes_.planar};
  }

  /// The plans by copy, so that nobody changes them under a running batch.
  [[nodiscard]] std::unique_ptr<Plan[]> plans(const RowPart& part, const NumberRow& row,
                                              const ColourPrograms& moves) const {
    auto plans = std::make_unique<Plan[]>(part.count);
    if (part.count > 0) {
      std::memcpy(plans.get(), wishes_.plan->data() + 13 * part.first, part.count * sizeof(Plan));
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      const auto [height, width] = first_size(moves, i, row.height, row.width);
      const char* fault = plan_fault(plans[i], height, width);
      if (fault != nullptr) refuse("plan " + std::to_string(part.first + i) + ": " + fault);
    }
    return plans;
  }

  /// The programs by copy, likewise.
  [[nodiscard]] ColourPrograms moves(const RowPart& part, const NumberRow& row,
                                     std::size_t largest) const {
    const std::size_t steps = wishes_.moves->shape(1);
    auto copy = std::make_unique<ColourWork[]>(part.count * steps);
    if (part.count * steps > 0) {
      std::memcpy(copy.get(), wishes_.moves->data() + 14 * part.first * steps,
                  part.count * steps * sizeof(ColourWork));
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      const ColourProgram program{copy.get() + i * steps, steps};
      const char* fault = move_fault(program, row.height, row.width);
      for (std::size_t k = 0; k < steps && fault == nullptr; ++k) {
        if (!(number_outside(program.steps[k]) <= static_cast<double>(largest))) {
          fault = "the number outside is one that out cannot hold";
        }
      }
      if (fault == nullptr && begins_with_canvas(program) && !wishes_.plan) {
        fault = "a canvas has no plan";
      }
      if (fault != nullptr) refuse("moves " + std::to_string(part.first + i) + ": " + fault);
    }
    return {std::move(copy), steps};
  }

  const Wishes wishes_;
};

PyJob decode_masks(const Spans& spans, const NumberArray& out, const StatusArray& status,
                   const PoolHandle& pool, bool verify, const std::optional<PlanArray>& plan,
                   const std::optional<SizeArray>& sizes, std::size_t fill, bool planar,
                   std::optional<std::size_t> max_pixels, const std::optional<MoveArray>& moves) {
  if (out.dtype() != nb::dtype<std::uint8_t>() && out.dtype() != nb::dtype<std::uint16_t>()) {
    refuse("out: expected an array of uint8 or uint16");
  }
  if (out.ndim() < 1) refuse("out: expected 3 or 4 dimensions");
  auto work = std::make_shared<NumberRows>(
      spans, verify,
      NumberRows::Wishes{plan, sizes, fill, planar, max_pixels.value_or(any_pixels), moves});
  const std::size_t count = work->size();
  expect_length("out", out.shape(0), count);
  expect_length("status", status.size(), count);
  std::vector<std::size_t> shape;
  std::size_t row_bytes = out.itemsize();
  for (std::size_t i = 1; i < out.ndim(); ++i) {
    shape.push_back(out.shape(i));
    row_bytes *= out.shape(i);
  }
  const RowPart part{0,     count,     static_cast<std::uint8_t*>(out.data()),
                     shape, row_bytes, status.data()};
  auto [task, cut] = work->task({&part, 1}, 1);
  return begin(std::move(task), cut, pool, keep(std::move(work), out, status));
}

std::unique_ptr<RowWork> mask_rows(const Spans& spans, bool verify,
                                   const std::optional<PlanArray>& plan,
                                   const std::optional<SizeArray>& sizes, std::size_t fill,
                                   bool planar, std::optional<std::size_t> max_pixels,
                                   const std::optional<MoveArray>& moves) {
  return std::make_unique<NumberRows>(
      spans, verify,
      NumberRows::Wishes{plan, sizes, fill, planar, max_pixels.value_or(any_pixels), moves});
}

void mask_places(
    const nb::ndarray<const double, nb::shape<14>, nb::c_contig, nb::device::cpu>& step,
    const nb::ndarray<std::int64_t, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>& out) {
  ColourWork work{};
  std::memcpy(&work, step.data(), sizeof work);
  const char* fault = move_fault({&work, 1}, out.shape(0), out.shape(1));
  if (fault != nullptr) refuse(std::string("step: ") + fault);
  const std::size_t height = out.shape(0), width = out.shape(1);
  std::vector<float> memory(floats_of_places(width));
  for (std::size_t y = 0; y < height; ++y) {
    moved_places(work, height, width, y, memory.data(), out.data() + y * width);
  }
}

void mask_forms(
    const Spans& spans,
    const nb::ndarray<std::int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>& out) {
  const auto bytes = resolve(spans);
  expect_length("out", out.shape(0), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    MaskForm form{};
    const bool known = read_mask_form(bytes[i], form) == Status::ok;
    out.data()[2 * i] = known ? static_cast<std::int32_t>(form.channels) : 0;
    out.data()[2 * i + 1] = known ? std::max(form.bits, 8) : 0;
  }
}

}  // namespace

void bind_masks(nb::module_& m) {
  m.def("mask_forms", &mask_forms, "spans"_a, "out"_a.noconvert(),
        nb::sig("def mask_forms(spans: Spans, out: NDArray[np.int32]) -> None"),
        "Read the headers of masks. ``out`` is (n, 2): the channels of a pixel (1 for a palette)\n"
        "and the bits of each number, 8 or 16; zeros for what is no PNG or JPEG.");
  m.def("decode_masks", &decode_masks, "spans"_a, "out"_a.noconvert(), "status"_a.noconvert(),
        "pool"_a = nb::none(), nb::kw_only(), "verify"_a = true, "plan"_a.noconvert() = nb::none(),
        "sizes"_a.noconvert() = nb::none(), "fill"_a = 0, "planar"_a = false,
        "max_pixels"_a = nb::none(), "moves"_a.noconvert() = nb::none(),
        nb::sig("def decode_masks(spans: Spans, out: NDArray[Any], status: NDArray[np.int32], "
                "pool: ThreadPool | None = None, *, verify: bool = True, "
                "plan: NDArray[np.int32] | None = None, sizes: NDArray[np.int32] | None = None, "
                "fill: int = 0, planar: bool = False, max_pixels: int | None = None, "
                "moves: NDArray[np.float64] | None = None) -> Job"),
        "Decode each mask into ``out[i]``, its numbers as stored: palette indices, 16 bits.\n\n"
        "``out`` is uint8 or uint16, (n, H, W), (n, H, W, C) or, ``planar``, (n, C, H, W). With a\n"
        "``plan`` (see ``decode_transformed``), pixels are chosen as torch's\n"
        "interpolate(mode='nearest') chooses them, and ``fill`` is the number around them. A mask\n"
        "that has not the size of row i of ``sizes`` (n, 2), other channels than ``out`` or too\n"
        "many bits for it is BAD_SHAPE; one with more than ``max_pixels`` is TOO_LARGE. ``moves``\n"
        "(n, steps, 14) are flips and warps of finished rows, as ``colour_rows`` has them; the "
        "first\n"
        "number of a warp's fill is that outside.");
  m.def("mask_rows", &mask_rows, "spans"_a, nb::kw_only(), "verify"_a,
        "plan"_a.noconvert() = nb::none(), "sizes"_a.noconvert() = nb::none(), "fill"_a = 0,
        "planar"_a = false, "max_pixels"_a = nb::none(), "moves"_a.noconvert() = nb::none(),
        nb::sig("def mask_rows(spans: Spans, *, verify: bool, "
                "plan: NDArray[np.int32] | None = None, sizes: NDArray[np.int32] | None = None, "
                "fill: int = 0, planar: bool = False, max_pixels: int | None = None, "
                "moves: NDArray[np.float64] | None = None) -> RowWork"),
        "Rows as ``decode_masks`` fills them.");
  m.def(
      "mask_places", &mask_places, "step"_a.noconvert(), "out"_a.noconvert(),
      nb::sig("def mask_places(step: NDArray[np.float64], out: NDArray[np.int64]) -> None"),
      "Write for each pixel of a mask (H, W) which one it shows after a step (14,) of ``moves``,\n"
      "counted row by row: -1 for none.");
}

namespace {

using Values = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

PyJob look_up(const Array<const std::uint8_t, 2>& pictures, const Values& tables, const Values& out,
              const PoolHandle& pool, bool planar) {
  const std::size_t count = pictures.shape(0);
  const std::size_t picture_bytes = pictures.shape(1);
  const std::size_t channels = tables.shape(0);
  if (tables.shape(1) != 256 || channels == 0 || picture_bytes % channels != 0) {
    throw nb::value_error("tables: expected 256 values for each channel of the pictures");
  }
  if ((out.itemsize() != 2 && out.itemsize() != 4) || tables.itemsize() != out.itemsize()) {
    throw nb::value_error("tables, out: expected values of 2 or 4 bytes, both the same");
  }
  if (out.shape(0) != count || out.shape(1) != picture_bytes) {
    throw nb::value_error("out: expected a value for each byte of the pictures");
  }
  const fastio::ValueTableWork work{.pictures = pictures.data(),
                                    .picture_bytes = picture_bytes,
                                    .channels = channels,
                                    .planar = planar,
                                    .tables = tables.data(),
                                    .out = out.data(),
                                    .value_bytes = out.itemsize()};
  return begin(fastio::value_table_task(work), {count, grain_for(picture_bytes)}, pool,
               keep(pictures, tables, out));
}

}  // namespace

void bind_look_up(nb::module_& m) {
  m.def("look_up", &look_up, "pictures"_a.noconvert(), "tables"_a.noconvert(), "out"_a.noconvert(),
        "pool"_a = nb::none(), nb::kw_only(), "planar"_a = false,
        nb::sig("def look_up(pictures: NDArray[np.uint8], tables: NDArray[Any], out: NDArray[Any], "
                "pool: ThreadPool | None = None, *, planar: bool = False) -> Job"),
        "Replace each byte of ``pictures``, (n, bytes), by its value in the table of its channel,\n"
        "(channels, 256), of 2 or 4 bytes each; ``out`` is (n, bytes). ``planar``: channel behind\n"
        "channel, else pixel behind pixel.");
}

}  // namespace fastio::python
