// Batches of rows, pictures or arrays: each filled by a job of its own, and handed out as a tensor.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <variant>

#include "pictures/decode.h"
#include "python/batch_loop.h"
#include "python/row_work.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using Labels = nb::ndarray<nb::c_contig, nb::device::cpu>;

/// Values as they are stored, planes put together, or pictures decoded, without any transform.
class PlainRows final : public RowWork {
 public:
  PlainRows(const Spans& spans, bool verify, bool is_encoded, bool from_planes)
      : RowWork(spans, verify), is_encoded_(is_encoded), from_planes_(from_planes) {
    if (is_encoded) intervals_ = spans.intervals();
  }

  [[nodiscard]] std::pair<std::unique_ptr<fastio::Task>, Cut> task(std::span<const RowPart> parts,
                                                                   std::size_t) const override {
    const RowPart& part = parts.front();
    auto bytes = resolve(spans(), part.first, part.count);
    if (!is_encoded_) {
      const fastio::Rows rows{part.out, part.row_bytes, checksums(part), part.status};
      const std::size_t planes = from_planes_ ? part.shape.back() : 0;
      return {rows_task(std::move(bytes), rows, planes),
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
  const bool from_planes_;
  std::optional<Spans> intervals_;
};

/// Rows of all batches: of one shape and dtype.
struct RowFormat {
  std::vector<std::size_t> shape;
  nb::dlpack::dtype dtype;
  bool channels_last;  ///< rows are (H, W, C) and handed out as (C, H, W)
  std::size_t row_bytes;
};

/// A field of the batches that becomes rows: one tensor, or one for each view.
struct RowsOutput {
  nb::object object;  ///< keeps `work`
  const RowWork* work;
  std::vector<RowFormat> formats;            ///< of each tensor
  std::vector<nb::object> rings;             ///< lend their memory, or
  std::vector<fastio::BufferRing*> lenders;  ///< the same
  nb::object pinned;  ///< makes a tensor of a shape: torch's own, pinned memory
  std::size_t times;  ///< so many views lie one behind the other in each tensor
  bool is_list;       ///< of tensors
};

/// A column beside them: numbers, a row of `values` for each sample, or whatever Python makes.
struct ColumnOutput {
  std::optional<Labels> values;
  nb::object make;    ///< (first, last): the column of these samples of the chunk
  nb::object pinned;  ///< as of RowsOutput; none: memory of its own
  std::size_t times;  ///< so many copies of `values` lie one behind the other

  /// Bytes of one sample.
  [[nodiscard]] std::size_t row_bytes() const {
    std::size_t nbytes = values->itemsize();
    for (std::size_t i = 1; i < values->ndim(); ++i) nbytes *= values->shape(i);
    return nbytes;
  }
};

using Output = std::variant<RowsOutput, ColumnOutput>;

/// What holds the values of a batch.
enum class Container { value, list, tuple, dict };

/// Memory of one tensor.
struct Piece {
  std::shared_ptr<fastio::BufferRing::Lease> memory;
  nb::object pinned;  ///< torch's tensor, where that is the memory
  std::uint8_t* data = nullptr;
};

/// The rows of one field of a batch on their way.
struct Filling {
  std::vector<Piece> pieces;
  std::vector<std::int32_t> status;
  OwnJob job;  // last: it is over before its memory goes
};

struct RowRequest {
  std::vector<Output> outputs;  ///< in the order of the batch
  Container container;
  std::vector<nb::object> names;  ///< of a dict's values
  Int64s cuts;
  nb::object pool;
  nb::object from_dlpack;
  nb::object made;
  std::int64_t pictures;  ///< of a sample
};

std::uint8_t* data_of(const nb::object& tensor) {
  return reinterpret_cast<std::uint8_t*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
}

nb::tuple tuple_of(std::span<const std::int64_t> shape) {
  nb::list sizes;
  for (const std::int64_t size : shape) sizes.append(size);
  return nb::tuple(sizes);
}

class RowBatches final : public BatchGroup {
 public:
  RowBatches(RowRequest request, nb::object proof, nb::object repair)
      : BatchGroup(request.cuts.size() - 1, std::move(proof), std::move(repair)),
        request_(std::move(request)),
        pool_(nb::cast<PyPool&>(request_.pool)),
        made_(nb::cast<BatchCounts&>(request_.made)) {}

  ~RowBatches() override { cancel(); }

  void begin(std::size_t k) override {
    std::vector<Filling> fillings;  // none in a forked child, which has the batch repaired
    fillings.reserve(request_.outputs.size());
    const bool is_ours = getpid() == pid_;
    for (const Output& output : request_.outputs) {
      const auto* rows = std::get_if<RowsOutput>(&output);
      if (rows != nullptr && is_ours) fillings.push_back(begun(*rows, k));
    }
    fillings_.push_back(std::move(fillings));
  }

  std::optional<ReadyBatch> finish(std::size_t k) override {
    is_good_ = false;
    std::vector<Filling> fillings = std::move(fillings_.front());
    fillings_.pop_front();
    if (fillings.empty()) return {};
    const auto is_bad = [](std::int32_t status) { return status != 0; };
    for (Filling& filling : fillings) {
      if (!filling.job.wait() || std::ranges::any_of(filling.status, is_bad)) return {};
    }
    is_good_ = true;
    {
      const nb::ft_object_guard guard(request_.made);
      made_.samples += request_.pictures * static_cast<std::int64_t>(samples(k));
    }
    return ready(fillings, k);
  }

  nb::object repair(std::size_t k) override { return repairer()(k); }

  void cancel() override {
    for (std::vector<Filling>& fillings : fillings_) {
      for (Filling& filling : fillings) filling.job.cancel();
    }
  }

  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(request_.from_dlpack.ptr());
    for (const Output& output : request_.outputs) {
      if (const auto* column = std::get_if<ColumnOutput>(&output)) Py_VISIT(column->make.ptr());
    }
    return BatchGroup::traverse(visit, arg);
  }

  /// Whether another batch should be begun here: not after one that had to be repaired.
  [[nodiscard]] bool goes_on() const { return is_good_ && yielded < size(); }

  std::size_t yielded = 0;  ///< batches, by iterating

 private:
  [[nodiscard]] std::size_t first(std::size_t k) const {
    return static_cast<std::size_t>(request_.cuts.data()[k]);
  }
  [[nodiscard]] std::size_t samples(std::size_t k) const { return first(k + 1) - first(k); }

  /// Has threads fill the rows of one field.
  [[nodiscard]] Filling begun(const RowsOutput& output, std::size_t k) {
    const std::size_t count = samples(k);
    Filling filling;
    filling.status.resize(count);
    parts_.clear();
    for (std::size_t i = 0; i < output.formats.size(); ++i) {
      const RowFormat& format = output.formats[i];
      const Piece& piece = filling.pieces.emplace_back(piece_of(output, i, count * output.times));
      for (std::size_t v = 0; v < output.times; ++v) {
        parts_.push_back({first(k), count, piece.data + v * count * format.row_bytes, format.shape,
                          format.row_bytes, filling.status.data()});
      }
    }
    auto [task, cut] = output.work->task(parts_, pool_.used());
    filling.job = OwnJob(submit(std::move(task), cut, nb::handle_t<PyPool>(request_.pool.ptr())));
    return filling;
  }

  /// Memory for the `rows` rows of tensor i.
  [[nodiscard]] static Piece piece_of(const RowsOutput& output, std::size_t i, std::size_t rows) {
    const RowFormat& format = output.formats[i];
    Piece piece;
    if (output.pinned.is_none()) {
      piece.memory = output.lenders[i]->acquire(rows * format.row_bytes);
      if (!piece.memory) throw std::bad_alloc();
      piece.data = piece.memory->data();
    } else {
      const auto [shape, dimensions] = shape_of(format, rows);
      piece.pinned = output.pinned(tuple_of({shape.data(), dimensions}));
      piece.data = data_of(piece.pinned);
    }
    return piece;
  }

  /// Of rows in memory, and the number of its axes.
  [[nodiscard]] static std::pair<std::array<std::int64_t, most_dimensions>, std::size_t> shape_of(
      const RowFormat& format, std::size_t count) {
    std::array<std::int64_t, most_dimensions> shape{static_cast<std::int64_t>(count)};
    for (std::size_t i = 0; i < format.shape.size(); ++i) {
      shape[i + 1] = static_cast<std::int64_t>(format.shape[i]);
    }
    return {shape, format.shape.size() + 1};
  }

  [[nodiscard]] ReadyBatch ready(const std::vector<Filling>& fillings, std::size_t k) const {
    const std::size_t count = samples(k);
    std::size_t nbytes = 0;  // of rows, which lie in buffers
    auto filling = fillings.begin();
    const auto value = [&](const Output& output) {
      const auto* rows = std::get_if<RowsOutput>(&output);
      if (rows == nullptr) return column_of(std::get<ColumnOutput>(output), k);
      return tensors(*rows, *filling++, count, nbytes);
    };
    nb::object batch;
    if (request_.container == Container::value) {
      batch = value(request_.outputs.front());
    } else if (request_.container == Container::dict) {
      nb::dict values;
      auto name = request_.names.begin();
      for (const Output& output : request_.outputs) values[*name++] = value(output);
      batch = std::move(values);
    } else {
      nb::list values;
      for (const Output& output : request_.outputs) values.append(value(output));
      batch = std::move(values);
      if (request_.container == Container::tuple) batch = nb::tuple(batch);
    }
    return {std::move(batch), static_cast<std::int64_t>(count), static_cast<std::int64_t>(nbytes)};
  }

  /// The tensor of a field, or the list of its tensors.
  [[nodiscard]] nb::object tensors(const RowsOutput& output, const Filling& filling,
                                   std::size_t count, std::size_t& nbytes) const {
    const std::size_t rows = count * output.times;
    for (const RowFormat& format : output.formats) nbytes += rows * format.row_bytes;
    if (!output.is_list) return tensor(output.formats.front(), filling.pieces.front(), rows);
    nb::list all;
    for (std::size_t i = 0; i < filling.pieces.size(); ++i) {
      all.append(tensor(output.formats[i], filling.pieces[i], rows));
    }
    return all;
  }

  [[nodiscard]] nb::object tensor(const RowFormat& format, const Piece& piece,
                                  std::size_t rows) const {
    if (piece.pinned.is_valid()) {
      if (!format.channels_last) return piece.pinned;
      return piece.pinned.attr("permute")(0, 3, 1, 2);
    }
    auto [shape, dimensions] = shape_of(format, rows);
    std::array<std::int64_t, most_dimensions> strides{};
    if (format.channels_last) {
      const auto [height, width, channels] = std::array{shape[1], shape[2], shape[3]};
      shape = {shape[0], channels, height, width};
      strides = {height * width * channels, 1, width * channels, channels};
    }
    const std::span<const std::int64_t> sizes(shape.data(), dimensions);
    const std::span<const std::int64_t> steps(strides.data(),
                                              format.channels_last ? dimensions : 0);
    return make_tensor(request_.from_dlpack, piece.memory,
                       {piece.data, format.dtype, sizes, steps});
  }

  /// Numbers lie in memory of their own: whoever keeps them keeps no pictures.
  [[nodiscard]] nb::object column_of(const ColumnOutput& column, std::size_t k) const {
    if (!column.values) return column.make(first(k), first(k + 1));
    const Labels& all = *column.values;
    const std::size_t count = samples(k), nbytes = count * column.row_bytes();
    std::array<std::int64_t, most_dimensions> shape{
        static_cast<std::int64_t>(count * column.times)};
    for (std::size_t i = 1; i < all.ndim(); ++i) {
      shape[i] = static_cast<std::int64_t>(all.shape(i));
    }
    const std::span<const std::int64_t> sizes(shape.data(), all.ndim());
    const auto* from = static_cast<const std::uint8_t*>(all.data()) + first(k) * column.row_bytes();
    const auto copy = [&](std::uint8_t* to) {
      for (std::size_t v = 0; v < column.times; ++v) std::memcpy(to + v * nbytes, from, nbytes);
    };
    if (!column.pinned.is_none()) {
      nb::object tensor = column.pinned(tuple_of(sizes));
      copy(data_of(tensor));
      return tensor;
    }
    const auto memory = std::make_shared_for_overwrite<std::uint8_t[]>(nbytes * column.times);
    copy(memory.get());
    return make_tensor(request_.from_dlpack, memory, {memory.get(), all.dtype(), sizes});
  }

  const RowRequest request_;
  PyPool& pool_;
  BatchCounts& made_;
  std::deque<std::vector<Filling>> fillings_;  // by batch, of each field that becomes rows
  std::vector<RowPart> parts_;                 // of the field that is begun
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

void make_rows_output(RowsOutput* self, nb::object work,
                      std::vector<std::vector<std::size_t>> shapes, const nb::object& dtype,
                      bool channels_last, std::vector<nb::object> rings, nb::object pinned,
                      bool is_list) {
  const auto* filler = nb::cast<const RowWork*>(work);
  if (shapes.empty() || (shapes.size() > 1 && !is_list) || filler->views % shapes.size() != 0) {
    throw nb::value_error("shapes: expected one, or for a list one of each view");
  }
  if (rings.size() != (pinned.is_none() ? shapes.size() : 0)) {
    throw nb::value_error("expected a ring for each shape, or pinned");
  }
  std::vector<RowFormat> formats;
  for (std::vector<std::size_t>& shape : shapes) {
    if (shape.size() + 1 > most_dimensions || (channels_last && shape.size() != 3)) {
      throw nb::value_error("shape: expected at most 7 axes, and 3 for channels_last");
    }
    RowFormat format{std::move(shape), dtype_of(dtype), channels_last, 0};
    format.row_bytes = format.dtype.bits / 8U;
    for (const std::size_t size : format.shape) format.row_bytes *= size;
    formats.push_back(std::move(format));
  }
  std::vector<fastio::BufferRing*> lenders;
  for (const nb::object& ring : rings) lenders.push_back(&nb::cast<fastio::BufferRing&>(ring));
  const std::size_t times = filler->views / formats.size();
  new (self) RowsOutput{std::move(work),
                        filler,
                        std::move(formats),
                        std::move(rings),
                        std::move(lenders),
                        std::move(pinned),
                        times,
                        is_list};
}

void make_column_output(ColumnOutput* self, std::optional<Labels> values, nb::object make,
                        nb::object pinned, std::size_t times) {
  if (values.has_value() != make.is_none()) throw nb::value_error("expected values, or make");
  if (values && (values->ndim() < 1 || values->ndim() > most_dimensions)) {
    throw nb::value_error("values: expected 1 to 8 axes");
  }
  new (self) ColumnOutput{std::move(values), std::move(make), std::move(pinned), times};
}

Container container_of(const std::string& name, std::size_t values) {
  if (name == "value" && values == 1) return Container::value;
  if (name == "list") return Container::list;
  if (name == "tuple") return Container::tuple;
  if (name == "dict") return Container::dict;
  throw nb::value_error(
      ("container is " + name + ", expected list, tuple, dict, or value for one alone").c_str());
}

nb::object row_batches(const nb::list& outputs, const Int64s& cuts, const std::string& container,
                       std::vector<nb::object> names, nb::object pool, nb::object from_dlpack,
                       nb::object made, std::int64_t pictures, nb::object proof,
                       nb::object repair) {
  RowRequest request{{},
                     container_of(container, outputs.size()),
                     std::move(names),
                     cuts,
                     std::move(pool),
                     std::move(from_dlpack),
                     std::move(made),
                     pictures};
  std::optional<std::size_t> count;
  for (const nb::handle output : outputs) {
    const RowsOutput* rows = nullptr;
    if (!nb::try_cast(output, rows)) continue;
    const std::size_t size = rows->work->size();
    if (!count) expect_cuts(cuts, size);
    expect_length("work", size, count.value_or(size));
    count = size;
  }
  if (!count) throw nb::value_error("outputs: none of them has rows");
  for (const nb::handle output : outputs) {
    const RowsOutput* rows = nullptr;
    if (nb::try_cast(output, rows)) {
      request.outputs.emplace_back(*rows);
      continue;
    }
    const auto& column = nb::cast<const ColumnOutput&>(output);
    if (column.values) expect_length("values", column.values->shape(0), *count);
    request.outputs.emplace_back(column);
  }
  if (request.container == Container::dict) {
    expect_length("names", request.names.size(), request.outputs.size());
  }
  return nb::cast(new RowBatches(std::move(request), std::move(proof), std::move(repair)),
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
      [](const Spans& spans, bool verify, bool is_encoded,
         bool from_planes) -> std::unique_ptr<RowWork> {
        return std::make_unique<PlainRows>(spans, verify, is_encoded, from_planes);
      },
      "spans"_a, nb::kw_only(), "verify"_a, "is_encoded"_a, "from_planes"_a = false,
      nb::sig("def plain_rows(spans: Spans, *, verify: bool, is_encoded: bool, "
              "from_planes: bool = False) -> RowWork"),
      "Rows as ``gather`` fills them, ``from_planes`` or not, or as ``decode_images`` if these\n"
      "are encoded pictures.");
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
  nb::class_<RowsOutput>(m, "RowsOutput", "A field of batches that becomes rows: see row_batches.")
      .def("__init__", &make_rows_output, "work"_a, nb::kw_only(), "shapes"_a, "dtype"_a,
           "channels_last"_a, "rings"_a, "pinned"_a.none() = nb::none(), "is_list"_a = false,
           nb::sig("def __init__(self, work: RowWork, *, shapes: Sequence[Sequence[int]], "
                   "dtype: np.dtype[Any], channels_last: bool, rings: Sequence[BufferRing], "
                   "pinned: Callable[[tuple[int, ...]], Any] | None = None, "
                   "is_list: bool = False) -> None"),
           "Each sample is a row of one of the ``shapes`` and of ``dtype``, in memory of a ring, "
           "or\n"
           "in a tensor that ``pinned`` makes of a shape. ``channels_last`` hands rows of (H, W, "
           "C)\n"
           "out as (C, H, W). The views of a ``work`` become a list of tensors with a shape each, "
           "or\n"
           "without ``is_list`` one tensor: that of the first view, behind it the second one.");
  nb::class_<ColumnOutput>(m, "ColumnOutput", "A column of batches: see row_batches.")
      .def("__init__", &make_column_output, "values"_a.noconvert().none(), nb::kw_only(),
           "make"_a.none(), "pinned"_a.none(), "times"_a = 1,
           nb::sig("def __init__(self, values: NDArray[Any] | None, *, "
                   "make: Callable[[int, int], Any] | None, "
                   "pinned: Callable[[tuple[int, ...]], Any] | None, times: int = 1) -> None"),
           "One row of ``values`` for each sample, copied, into what ``pinned`` makes if it is\n"
           "given, and all rows so many ``times`` one behind the other; or what ``make(first, "
           "last)`` returns for the samples of a batch.");
  m.def(
      "row_batches", &row_batches, "outputs"_a, "cuts"_a.noconvert(), nb::kw_only(), "container"_a,
      "names"_a, "pool"_a, "from_dlpack"_a, "made"_a, "pictures"_a, "proof"_a, "repair"_a,
      nb::sig("def row_batches(outputs: list[RowsOutput | ColumnOutput], "
              "cuts: NDArray[np.int64], *, container: str, names: Sequence[str], "
              "pool: ThreadPool, from_dlpack: Callable[[Any], Any], made: BatchCounts, "
              "pictures: int, proof: Any, repair: Callable[[int], Any]) -> RowBatches"),
      "Batch k is made of the samples ``cuts[k]`` up to ``cuts[k + 1]``: a tensor of each output\n"
      "(at least one has rows) in a ``container``, \"list\", \"tuple\", \"dict\" by ``names``, or\n"
      "\"value\" for one alone. Each field has a job of its own. ``from_dlpack`` is torch's, or\n"
      "``array_from_dlpack``.\n"
      "``made.samples`` counts the pictures that native code has made, ``pictures`` a sample;\n"
      "``repair(k)`` makes a batch with bad samples, or one begun before a fork.");
}

}  // namespace fastio::python
