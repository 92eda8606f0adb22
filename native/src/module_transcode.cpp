// Pictures written anew as Python sees it: spans in, one run of bytes and what became of each out.
#include <cstring>

#include "fastio/transcode.h"
#include "module.h"

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

}  // namespace fastio::python
