// Jump tables as Python sees them: spans in, one run of words and what became of each out.
#include <algorithm>
#include <cstring>
#include <span>

#include "fastio/jpeg.h"
#include "fastio/jump_table.h"
#include "fastio/note_points.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

template <typename T>
using Owned = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
Owned<T> allocate(std::size_t count) {
  T* raw = std::make_unique<T[]>(count).release();
  const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Owned<T>(raw, {count}, owner);
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
    const auto words = allocate<std::uint32_t>(total / sizeof(std::uint32_t));
    const auto counts = allocate<std::uint32_t>(count);
    const auto status = allocate<std::int32_t>(count);
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

}  // namespace fastio::python
