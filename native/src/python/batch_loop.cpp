// The loop of a loader: batches begun ahead, waited for and counted in one step for each.

#include "python/batch_loop.h"

#include <array>
#include <atomic>
#include <chrono>
#include <deque>

namespace fastio::python {
namespace {

using namespace nb::literals;
using Clock = std::chrono::steady_clock;

/// Attributes of a FinishedBatch that Python made, and of a cursor.
struct Names {
  nb::object batch = nb::str("batch"), samples = nb::str("samples"), nbytes = nb::str("nbytes"),
             tokens = nb::str("tokens"), slots = nb::str("slots"), errors = nb::str("errors"),
             on_device = nb::str("on_device"), proof = nb::str("proof"), result = nb::str("result"),
             cancel = nb::str("cancel");
};

class BatchLoop {
 public:
  BatchLoop(nb::object submitted, std::size_t depth, nb::object counts, nb::object cursor,
            nb::object note, nb::object settle, bool is_gradual)
      : submitted_(std::move(submitted)),
        depth_(depth),
        counts_object_(std::move(counts)),
        counts_(nb::cast<BatchCounts&>(counts_object_)),
        cursor_(std::move(cursor)),
        note_(std::move(note)),
        settle_(std::move(settle)),
        is_gradual_(is_gradual),
        cursor_batch_(nb::cast<std::int64_t>(cursor_.attr(names_.batch))) {}

  ~BatchLoop() {
    for (const Item& item : under_way_) {
      if (item.group != nullptr) item.group->cancel();
    }
  }

  void run(std::size_t limit, nb::object is_watched) {
    left_ = limit;
    is_watched_ = std::move(is_watched);
    run_begun_ = Clock::now();
  }

  nb::object next() {
    const SoleUse use(used_, "this loop of batches");
    const nb::object is_watched = is_watched_;  // its own reference: run() may replace the other
    while (left_ > 0 && !stopped_.load(std::memory_order_relaxed)) {
      if (!is_watched.is_none() && nb::cast<bool>(is_watched())) break;
      const auto begun = Clock::now();
      begin_ahead();
      if (under_way_.empty()) break;
      Item item = std::move(under_way_.front());
      under_way_.pop_front();
      nb::object batch = finish(item, begun);
      ++cursor_batch_;
      ++number_;
      cursor_.attr(names_.batch) = cursor_batch_;
      --left_;
      if (batch.is_valid()) return batch;
    }
    left_ = 0;
    throw nb::stop_iteration();
  }

  /// Whether every batch was handed out.
  [[nodiscard]] bool is_done() const { return has_ended_ && under_way_.empty(); }

  void stop() { stopped_.store(true, std::memory_order_relaxed); }

  void cancel() {
    std::deque<Item> dropped;  // apart: while they go, others may run, and the garbage collector
    dropped.swap(under_way_);
    for (const Item& item : dropped) {
      if (item.group != nullptr) {
        const nb::ft_object_guard guard(item.object);
        item.group->cancel();
      } else {
        item.object.attr(names_.cancel)();
      }
    }
  }

  int traverse(visitproc visit, void* arg) const {
    for (const nb::object* object :
         {&submitted_, &counts_object_, &cursor_, &note_, &settle_, &is_watched_}) {
      Py_VISIT(object->ptr());
    }
    for (const Item& item : under_way_) Py_VISIT(item.object.ptr());
    return 0;
  }

  [[nodiscard]] std::int64_t number() const { return number_; }

 private:
  /// A batch under way: number `number` of a group, or one that Python makes.
  struct Item {
    nb::object object;
    BatchGroup* group;
    std::size_t number;
  };

  /// Begins batches until one more than `depth` are under way.
  void begin_ahead() {
    std::size_t most = !is_gradual_ ? depth_ + 1 : is_first_ ? 1 : 2;
    for (; !has_ended_ && most > 0 && under_way_.size() <= depth_; --most) {
      nb::object object = nb::steal(PyIter_Next(submitted_.ptr()));
      if (!object.is_valid()) {
        if (PyErr_Occurred() != nullptr) throw nb::python_error();
        has_ended_ = true;
        return;
      }
      BatchGroup* group = nullptr;
      (void)nb::try_cast(object, group);
      const std::size_t number = group == nullptr ? 0 : begin_next_of(*group, object);
      under_way_.push_back({std::move(object), group, number});
    }
  }

  /// Begins the next batch of a group, which is `object` in Python; its number.
  static std::size_t begin_next_of(BatchGroup& group, const nb::object& object) {
    const nb::ft_object_guard guard(object);
    if (group.begun == group.size()) {
      throw nb::value_error("a group of batches was yielded more often than it has batches");
    }
    const std::size_t number = group.begun++;
    group.begin(number);
    return number;
  }

  /// The batch, counted; nothing where all its samples were left out.
  nb::object finish(const Item& item, Clock::time_point begun) {
    nb::object finished;
    if (item.group != nullptr) {
      if (item.number == 0) note_(item.group->proof());
      const nb::ft_object_guard guard(item.object);
      auto ready = item.group->finish(item.number);
      if (ready) {
        raise_signals();
        count(*ready, 0, begun);
        return std::move(ready->batch);
      }
      finished = item.group->repair(item.number);
    } else {
      finished = item.object.attr(names_.result)();
      note_(finished.attr(names_.proof));
    }
    raise_signals();
    const ReadyBatch ready{nb::none(), number_of(finished, names_.samples),
                           number_of(finished, names_.nbytes), number_of(finished, names_.tokens),
                           number_of(finished, names_.slots)};
    count(ready, number_of(finished, names_.on_device), begun);
    if (ready.samples == 0 || nb::len(nb::object(finished.attr(names_.errors))) > 0) {
      settle_(finished, number_);
      if (ready.samples == 0) return {};
    }
    return finished.attr(names_.batch);
  }

  /// Ctrl-C that came during the wait is raised here: Python would raise it when next() has
  /// returned, where the batch is counted as handed out but no loop has got it.
  static void raise_signals() {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

  static std::int64_t number_of(const nb::object& finished, const nb::object& name) {
    return nb::cast<std::int64_t>(finished.attr(name));
  }

  void count(const ReadyBatch& ready, std::int64_t on_device, Clock::time_point begun) {
    constexpr auto longest_run = std::chrono::milliseconds(100);  // others want to look, too
    const auto now = Clock::now();
    const std::chrono::duration<double> waited = now - begun;
    const nb::ft_object_guard guard(counts_object_);
    counts_.count(ready.samples, ready.nbytes, waited.count(), is_first_);
    counts_.decoded_on_device += on_device;
    counts_.tokens += ready.tokens;
    counts_.slots += ready.slots;
    is_first_ = false;
    if (now - run_begun_ > longest_run) left_ = 1;
  }

  const Names names_;
  const nb::object submitted_;
  const std::size_t depth_;
  const nb::object counts_object_;
  BatchCounts& counts_;
  nb::object cursor_;
  const nb::object note_;
  const nb::object settle_;
  const bool is_gradual_;
  nb::object is_watched_ = nb::none();
  std::deque<Item> under_way_;
  std::int64_t cursor_batch_;
  std::int64_t number_ = 0;
  std::size_t left_ = 0;
  Clock::time_point run_begun_;
  bool is_first_ = true;
  bool has_ended_ = false;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> used_{false};
};

nb::list waits_of(const BatchCounts& counts) {
  nb::list waits;
  for (const std::int64_t wait : counts.waits) waits.append(wait);
  return waits;
}

nb::tuple state_of(const BatchCounts& counts) {
  return nb::make_tuple(counts.batches, counts.samples, counts.batch_bytes, counts.tokens,
                        counts.slots, counts.decoded_on_device, counts.loading_s,
                        counts.first_batch_s, waits_of(counts));
}

void set_state(BatchCounts& counts, const nb::tuple& state) {
  new (&counts) BatchCounts{nb::cast<std::int64_t>(state[0]),
                            nb::cast<std::int64_t>(state[1]),
                            nb::cast<std::int64_t>(state[2]),
                            nb::cast<std::int64_t>(state[3]),
                            nb::cast<std::int64_t>(state[4]),
                            nb::cast<std::int64_t>(state[5]),
                            nb::cast<double>(state[6]),
                            nb::cast<double>(state[7]),
                            {}};
  for (std::size_t i = 0; i < BatchCounts::buckets; ++i) {
    counts.waits[i] = nb::cast<std::int64_t>(state[8][i]);
  }
}

}  // namespace

OwnJob::~OwnJob() {
  if (!job_) return;
  if (job_->foreign()) {
    new std::shared_ptr<fastio::Job>(std::move(job_));
    return;
  }
  if (job_->done()) return;
  const WithoutGil released;
  job_->cancel();
  (void)job_->wait(-1);
}

void OwnJob::cancel() {
  if (job_ && !job_->done() && !job_->foreign()) job_->cancel();
}

bool OwnJob::wait() {
  if (!job_) return false;
  if (job_->done()) return true;
  if (job_->foreign()) return false;
  wait_for(*job_, -1);
  return true;
}

void expect_cuts(const Int64s& cuts, std::size_t count) {
  const std::span<const std::int64_t> all(cuts.data(), cuts.size());
  if (all.empty() || all.front() != 0 || all.back() != static_cast<std::int64_t>(count) ||
      !std::ranges::is_sorted(all)) {
    throw nb::value_error(
        ("cuts: expected ascending numbers from 0 to " + std::to_string(count)).c_str());
  }
}

void bind_batch_loop(nb::module_& m) {
  nb::class_<BatchCounts>(m, "BatchCounts", "What a loader counts, shared by its iterations.")
      .def(nb::init<>())
      .def_rw("batches", &BatchCounts::batches, nb::lock_self())
      .def_rw("samples", &BatchCounts::samples, nb::lock_self())
      .def_rw("batch_bytes", &BatchCounts::batch_bytes, nb::lock_self(),
              "Bytes of the largest batch.")
      .def_rw("tokens", &BatchCounts::tokens, nb::lock_self())
      .def_rw("slots", &BatchCounts::slots, nb::lock_self())
      .def_rw("decoded_on_device", &BatchCounts::decoded_on_device, nb::lock_self())
      .def_rw("loading_s", &BatchCounts::loading_s, nb::lock_self())
      .def_rw("first_batch_s", &BatchCounts::first_batch_s, nb::lock_self())
      .def_prop_ro(
          "waits", &waits_of, nb::lock_self(), nb::sig("def waits(self) -> list[int]"),
          "Number k counts waits from 2**(k-1) up to 2**k microseconds; the last takes all longer.")
      .def("count", &BatchCounts::count, "samples"_a, "nbytes"_a, nb::kw_only(), "waited_s"_a,
           "first"_a, nb::lock_self(), "Count one batch that came after ``waited_s`` seconds.")
      .def("__getstate__", &state_of, nb::lock_self(),
           nb::sig("def __getstate__(self) -> tuple[Any, ...]"))
      .def("__setstate__", &set_state,
           nb::sig("def __setstate__(self, state: tuple[Any, ...]) -> None"));

  nb::class_<BatchGroup>(m, "BatchGroup",
                         "Neighbouring batches that native code makes: see BatchLoop.")
      .def("__len__", &BatchGroup::size);

  nb::class_<BatchLoop>(
      m, "BatchLoop", nb::is_weak_referenceable(), nb::type_slots(traversed<BatchLoop>),
      "Hands out the batches of an epoch in order, while ``depth`` are under way behind each.\n\n"
      "``submitted`` yields one item a batch: a BatchGroup, once for each of its batches, or\n"
      "something with ``result() -> FinishedBatch`` and ``cancel()``. Each batch is counted in\n"
      "``counts`` and moves ``cursor.batch``. ``note(proof)`` is called once a group, and once a\n"
      "batch that has no group. ``settle(finished, number)`` gets batches with bad samples, and\n"
      "those without any sample, which are not handed out. ``is_gradual`` begins one batch before\n"
      "the first is waited for, and at most two before each other.")
      .def(
          nb::init<nb::object, std::size_t, nb::object, nb::object, nb::object, nb::object, bool>(),
          "submitted"_a, "depth"_a, nb::kw_only(), "counts"_a, "cursor"_a, "note"_a, "settle"_a,
          "is_gradual"_a = false,
          nb::sig("def __init__(self, submitted: Iterator[Any], depth: int, *, counts: "
                  "BatchCounts, cursor: Any, note: Callable[[Any], None], "
                  "settle: Callable[[Any, int], None], is_gradual: bool = False) -> None"))
      .def(
          "run",
          [](nb::handle_t<BatchLoop> self, std::size_t limit, nb::object is_watched) {
            nb::cast<BatchLoop&>(self).run(limit, std::move(is_watched));
            return nb::borrow(self);
          },
          "limit"_a, "is_watched"_a.none() = nb::none(), nb::lock_self(),
          nb::sig("def run(self, limit: int, is_watched: Callable[[], bool] | None = None) "
                  "-> BatchLoop"),
          "Return itself, an iterator that ends after ``limit`` batches, after a tenth of a\n"
          "second, when ``is_watched`` returns True, or with the epoch.")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> BatchLoop"))
      .def("__next__", &BatchLoop::next, nb::lock_self(), nb::sig("def __next__(self) -> Any"))
      .def("stop", &BatchLoop::stop, "End the run before its next batch; from any thread.")
      .def("cancel", &BatchLoop::cancel, nb::lock_self(), "Let go of the batches under way.")
      .def_prop_ro("is_done", &BatchLoop::is_done, nb::lock_self(),
                   "Whether all batches were handed out.")
      .def_prop_ro("number", &BatchLoop::number, nb::lock_self(),
                   "How many were handed out or left out so far.");
}

namespace {

/// DLManagedTensor of dlpack.h: what a capsule named "dltensor" points to.
struct ManagedTensor {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

/// Lives as long as the tensor that is made of it.
struct View {
  ManagedTensor managed;
  std::array<std::int64_t, most_dimensions> shape;
  std::array<std::int64_t, most_dimensions> strides;
  std::shared_ptr<void> owner;
};

void free_view(ManagedTensor* managed) noexcept {
  delete static_cast<View*>(managed->context);
}

/// Of a capsule that nobody made a tensor of; otherwise its name is another.
void free_capsule(PyObject* capsule) noexcept {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  free_view(static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
}

}  // namespace

nb::object make_tensor(const nb::object& from_dlpack, std::shared_ptr<void> owner,
                       const TensorLayout& layout) {
  auto view = std::make_unique<View>(View{{}, {}, {}, std::move(owner)});
  std::ranges::copy(layout.shape, view->shape.begin());
  std::ranges::copy(layout.strides, view->strides.begin());
  nb::dlpack::dltensor& tensor = view->managed.tensor;
  tensor.data = layout.data;
  tensor.device = {nb::device::cpu::value, 0};
  tensor.ndim = static_cast<std::int32_t>(layout.shape.size());
  tensor.dtype = layout.dtype;
  tensor.shape = view->shape.data();
  tensor.strides = layout.strides.empty() ? nullptr : view->strides.data();
  view->managed.context = view.get();
  view->managed.deleter = &free_view;
  const nb::object capsule = nb::steal(PyCapsule_New(&view->managed, "dltensor", &free_capsule));
  if (!capsule.is_valid()) throw nb::python_error();
  (void)view.release();
  PyObject* arguments[] = {nullptr, capsule.ptr()};  // PyObject_CallOneArg, in the stable ABI
  PyObject* made = PyObject_Vectorcall(from_dlpack.ptr(), arguments + 1,
                                       1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

namespace {

/// An array of numpy over what a capsule that torch's function takes points to.
nb::object array_from_dlpack(const nb::object& capsule) {
  auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  if (PyCapsule_SetName(capsule.ptr(), "used_dltensor") != 0) throw nb::python_error();
  const nb::capsule owner(managed, [](void* raw) noexcept {
    auto* used = static_cast<ManagedTensor*>(raw);
    used->deleter(used);
  });
  const nb::dlpack::dltensor& tensor = managed->tensor;
  const auto dimensions = static_cast<std::size_t>(tensor.ndim);
  std::array<std::size_t, most_dimensions> shape{};
  if (dimensions > shape.size()) throw nb::value_error("an array of too many dimensions");
  std::copy_n(tensor.shape, dimensions, shape.begin());
  return nb::cast(nb::ndarray<nb::numpy>(tensor.data, dimensions, shape.data(), owner,
                                         tensor.strides, tensor.dtype));
}

}  // namespace

void bind_tensors(nb::module_& m) {
  m.def(
      "array_from_dlpack", &array_from_dlpack, "capsule"_a,
      nb::sig("def array_from_dlpack(capsule: Any) -> NDArray[Any]"),
      "A writable array over a DLPack capsule of host memory, which it keeps: for the batches of\n"
      "``row_batches`` and ``TokenFiller``, in the place of torch's function.");
}

}  // namespace fastio::python
