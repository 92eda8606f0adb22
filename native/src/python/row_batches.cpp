// Batches of rows, pictures or arrays: each filled by a job of its own, and handed out as a tensor.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>

#include "core/gather.h"
#include "pictures/decode.h"
#include "python/batch_loop.h"
#include "python/row_work.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using Labels = nb::ndarray<nb::c_contig, nb::device::cpu>;

/// Values as they are stored, or pictures decoded, without any transform.
class PlainRows final : public RowWork {
 public:
  PlainRows(const Spans& spans, bool verify, bool is_encoded)
      : RowWork(spans, verify), is_encoded_(is_encoded) {
    if (is_encoded) intervals_ = spans.intervals();
  }

  [[nodiscard]] std::pair<std::unique_ptr<fastio::Task>, Cut> task(const RowPart& part,
                                                                   std::size_t) const override {
    auto bytes = resolve(spans(), part.first, part.count);
    if (!is_encoded_) {
      const fastio::Rows rows{part.out, part.row_bytes, checksums(part), part.status};
      return {fastio::gather_task(std::move(bytes), rows),
              Cut{part.count, grain_for(part.row_bytes)}};
    }
    if (part.shape.size() != 3) throw nb::value_error("rows of pictures have three axes");
    if (part.shape[2] != 1 && part.shape[2] != 3 && part.shape[2] != 4) {
      throw nb::value_error("rows of pictures have 1, 3 or 4 channels");
    }
    const fastio::Picture first{part.out, part.shape[0], part.shape[1],
                                static_cast<int>(part.shape[2])};
    const fastio::Pictures pictures{first, checksums(part), part.status};
    auto intervals = intervals_ ? resolve(*intervals_, part.first, part.count) : nullptr;
    return {fastio::decode_task(std::move(bytes), std::move(intervals), pictures),
            Cut{part.count, grain_for(8 * part.row_bytes)}};
  }

 private:
  const bool is_encoded_;
  std::optional<Spans> intervals_;
};

/// Rows of all batches: of one shape and dtype.
struct RowFormat {
  std::vector<std::size_t> shape;
  nb::dlpack::dtype dtype;
  bool channels_last;  ///< rows are (H, W, C) and handed out as (C, H, W)
  std::size_t row_bytes;
};

/// One batch on its way.
struct Filling {
  std::shared_ptr<fastio::BufferRing::Lease> memory;
  std::vector<std::int32_t> status;
  OwnJob job;  // last: it is over before its memory goes
};

struct RowRequest {
  nb::object work;
  Int64s cuts;
  std::optional<Labels> labels;
  nb::object pool;
  nb::object ring;
  nb::object from_dlpack;
  nb::object made;
};

class RowBatches final : public BatchGroup {
 public:
  RowBatches(RowRequest request, RowFormat format, nb::object proof, nb::object repair)
      : BatchGroup(request.cuts.size() - 1, std::move(proof), std::move(repair)),
        request_(std::move(request)),
        format_(std::move(format)),
        work_(nb::cast<const RowWork&>(request_.work)),
        made_(nb::cast<BatchCounts&>(request_.made)) {}

  ~RowBatches() override { cancel(); }

  void begin(std::size_t k) override {
    Filling& filling = fillings_.emplace_back();
    if (getpid() != pid_) return;  // a forked child has it repaired
    const std::size_t count = samples(k);
    filling.memory =
        nb::cast<fastio::BufferRing&>(request_.ring).acquire(count * format_.row_bytes);
    if (!filling.memory) throw std::bad_alloc();
    filling.status.resize(count);
    const nb::handle_t<PyPool> pool(request_.pool.ptr());
    auto [task, cut] = work_.task(
        {static_cast<std::size_t>(request_.cuts.data()[k]), count, filling.memory->data(),
         format_.shape, format_.row_bytes, filling.status.data()},
        nb::cast<PyPool&>(pool).used());
    filling.job = OwnJob(submit(std::move(task), cut, pool));
  }

  std::optional<ReadyBatch> finish(std::size_t k) override {
    is_good_ = false;
    Filling filling = std::move(fillings_.front());
    fillings_.pop_front();
    if (!filling.job.wait()) return {};
    const auto is_bad = [](std::int32_t status) { return status != 0; };
    if (std::ranges::any_of(filling.status, is_bad)) return {};
    is_good_ = true;
    {
      const nb::ft_object_guard guard(request_.made);
      made_.samples += static_cast<std::int64_t>(samples(k));
    }
    return ready(filling, k);
  }

  nb::object repair(std::size_t k) override { return repairer()(k); }

  void cancel() override {
    for (Filling& filling : fillings_) filling.job.cancel();
  }

  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(request_.from_dlpack.ptr());
    return BatchGroup::traverse(visit, arg);
  }

  /// Whether another batch should be begun here: not after one that had to be repaired.
  [[nodiscard]] bool goes_on() const { return is_good_ && yielded < size(); }

  std::size_t yielded = 0;  ///< batches, by iterating

 private:
  [[nodiscard]] std::size_t samples(std::size_t k) const {
    return static_cast<std::size_t>(request_.cuts.data()[k + 1] - request_.cuts.data()[k]);
  }

  [[nodiscard]] ReadyBatch ready(const Filling& filling, std::size_t k) const {
    const std::size_t count = samples(k);
    const std::size_t dimensions = format_.shape.size() + 1;
    std::array<std::int64_t, most_dimensions> shape{static_cast<std::int64_t>(count)}, strides{};
    for (std::size_t i = 1; i < dimensions; ++i) {
      shape[i] = static_cast<std::int64_t>(format_.shape[i - 1]);
    }
    if (format_.channels_last) {
      const auto [height, width, channels] = std::array{shape[1], shape[2], shape[3]};
      shape = {shape[0], channels, height, width};
      strides = {height * width * channels, 1, width * channels, channels};
    }
    const std::span<const std::int64_t> sizes(shape.data(), dimensions);
    const std::span<const std::int64_t> steps(strides.data(), format_.channels_last ? 4 : 0);
    nb::object rows = make_tensor(request_.from_dlpack, filling.memory,
                                  {filling.memory->data(), format_.dtype, sizes, steps});
    const auto nbytes = static_cast<std::int64_t>(count * format_.row_bytes);
    if (!request_.labels) return {std::move(rows), shape[0], nbytes};
    nb::list batch;
    batch.append(std::move(rows));
    batch.append(labels(k, count));
    return {std::move(batch), shape[0], nbytes};
  }

  /// The labels of a batch in memory of their own: whoever keeps them keeps no pictures.
  [[nodiscard]] nb::object labels(std::size_t k, std::size_t count) const {
    const Labels& all = *request_.labels;
    std::array<std::int64_t, most_dimensions> shape{static_cast<std::int64_t>(count)};
    std::size_t nbytes = all.itemsize();
    for (std::size_t i = 1; i < all.ndim(); ++i) {
      shape[i] = static_cast<std::int64_t>(all.shape(i));
      nbytes *= all.shape(i);
    }
    const std::shared_ptr<std::uint8_t[]> memory(new std::uint8_t[count * nbytes]);
    const auto first = static_cast<std::size_t>(request_.cuts.data()[k]);
    std::memcpy(memory.get(), static_cast<const std::uint8_t*>(all.data()) + first * nbytes,
                count * nbytes);
    return make_tensor(request_.from_dlpack, memory,
                       {memory.get(), all.dtype(), {shape.data(), all.ndim()}});
  }

  const RowRequest request_;
  const RowFormat format_;
  const RowWork& work_;
  BatchCounts& made_;
  std::deque<Filling> fillings_;
  bool is_good_ = true;
  const pid_t pid_ = getpid();
};

nb::dlpack::dtype dtype_of(const nb::object& dtype) {
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  const auto bits = static_cast<std::uint8_t>(8 * nb::cast<std::size_t>(dtype.attr("itemsize")));
  constexpr const char* kinds = "iuf???b";  // as DLPack numbers them
  const char* found = std::strchr(kinds, kind[0]);
  if (found == nullptr || kind[0] == '?') throw nb::value_error("dtype: no tensor has it");
  return {static_cast<std::uint8_t>(found - kinds), bits, 1};
}

nb::object row_batches(nb::object work, const Int64s& cuts, std::vector<std::size_t> shape,
                       const nb::object& dtype, bool channels_last, std::optional<Labels> labels,
                       nb::object pool, nb::object ring, nb::object from_dlpack, nb::object made,
                       nb::object proof, nb::object repair) {
  const std::size_t count = nb::cast<const RowWork&>(work).size();
  expect_cuts(cuts, count);
  if (shape.size() + 1 > most_dimensions || (channels_last && shape.size() != 3)) {
    throw nb::value_error("shape: expected at most 7 axes, and 3 for channels_last");
  }
  if (labels) {
    if (labels->ndim() < 1 || labels->ndim() > most_dimensions) {
      throw nb::value_error("labels: expected 1 to 8 axes");
    }
    expect_length("labels", labels->shape(0), count);
  }
  RowFormat format{std::move(shape), dtype_of(dtype), channels_last, 0};
  format.row_bytes = format.dtype.bits / 8U;
  for (const std::size_t size : format.shape) format.row_bytes *= size;
  RowRequest request{
      std::move(work),        cuts,           std::move(labels), std::move(pool), std::move(ring),
      std::move(from_dlpack), std::move(made)};
  return nb::cast(
      new RowBatches(std::move(request), std::move(format), std::move(proof), std::move(repair)),
      nb::rv_policy::take_ownership);
}

nb::object next_of(nb::handle_t<RowBatches> self) {
  auto& group = nb::cast<RowBatches&>(self);
  if (!group.goes_on()) throw nb::stop_iteration();
  ++group.yielded;
  return nb::borrow(self);
}

}  // namespace

void bind_row_batches(nb::module_& m) {
  nb::class_<RowWork>(m, "RowWork", "Samples of a chunk and how each becomes a row.");
  m.def(
      "plain_rows",
      [](const Spans& spans, bool verify, bool is_encoded) -> std::unique_ptr<RowWork> {
        return std::make_unique<PlainRows>(spans, verify, is_encoded);
      },
      "spans"_a, nb::kw_only(), "verify"_a, "is_encoded"_a,
      nb::sig("def plain_rows(spans: Spans, *, verify: bool, is_encoded: bool) -> RowWork"),
      "Rows as ``gather`` fills them, or as ``decode_images`` if these are encoded pictures.");
  nb::class_<RowBatches, BatchGroup>(
      m, "RowBatches", nb::type_slots(traversed<RowBatches>),
      "Batches of rows; iterating yields this object for each batch to come, until one of them\n"
      "had to be repaired.")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> RowBatches"))
      .def("__next__", &next_of, nb::lock_self(), nb::sig("def __next__(self) -> RowBatches"))
      .def_ro("yielded", &RowBatches::yielded, nb::lock_self(),
              "How many batches iterating has yielded.");
  m.def("row_batches", &row_batches, "work"_a, "cuts"_a.noconvert(), nb::kw_only(), "shape"_a,
        "dtype"_a, "channels_last"_a, "labels"_a.noconvert().none(), "pool"_a, "ring"_a,
        "from_dlpack"_a, "made"_a, "proof"_a, "repair"_a,
        nb::sig("def row_batches(work: RowWork, cuts: NDArray[np.int64], *, "
                "shape: Sequence[int], dtype: np.dtype[Any], channels_last: bool, "
                "labels: NDArray[Any] | None, pool: ThreadPool, ring: BufferRing, "
                "from_dlpack: Callable[[Any], Any], made: BatchCounts, proof: Any, "
                "repair: Callable[[int], Any]) -> RowBatches"),
        "Batch k is a tensor of the samples ``cuts[k]`` up to ``cuts[k + 1]``, each a row of\n"
        "``shape`` and ``dtype`` in memory of ``ring``; with ``labels``, a list of it and theirs.\n"
        "``channels_last`` hands rows of (H, W, C) out as (C, H, W). ``from_dlpack`` is torch's.\n"
        "``made.samples`` counts those of batches that native code has made; ``repair(k)`` makes a "
        "batch with bad samples, or one begun before a fork.");
}

}  // namespace fastio::python
