/// What the files that bind the core share; the only files that know Python.
///
/// Every batch function checks shapes and spans, builds a task and begins it. Python references
/// live in PyJob, which dies with the GIL held; the threads see raw pointers only.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/buffer_ring.h"
#include "core/bytes.h"
#include "core/gather.h"
#include "core/thread_pool.h"

namespace fastio::python {

/// Releases the GIL for its lifetime. To be made with the GIL held.
///
/// A daemon thread that wants the GIL back while the interpreter ends never gets it: Python before
/// 3.14 ends such a thread by unwinding its stack, which aborts the process at the first noexcept
/// function, here as in nanobind. So the thread sleeps until the process has ended, as in 3.14.
class WithoutGil {
 public:
  WithoutGil() noexcept : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {        // not an exception, but glibc's way of pthread_exit
      for (;;) ::pause();  // leaving this block would go on with it
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

namespace nb = nanobind;

template <typename T, int dimensions>
using Array = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;
using ByteArray = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using ReadOnlyByteArray = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
using Int32s = Array<const std::int32_t, 1>;
using Int64s = Array<const std::int64_t, 1>;

/// Arrays that spans point into. Of a file that is not in memory there is the size alone: its
/// spans are checked like others, but nobody can look at them.
class Buffers {
 public:
  explicit Buffers(const nb::sequence& buffers) {
    for (nb::handle buffer : buffers) {
      if (nb::isinstance<nb::int_>(buffer)) {
        bytes_.emplace_back(static_cast<const std::uint8_t*>(nullptr),
                            nb::cast<std::size_t>(buffer));
        in_memory_ = false;
      } else {
        arrays_.push_back(nb::cast<Array<const std::uint8_t, 1>>(buffer));
        bytes_.emplace_back(arrays_.back().data(), arrays_.back().size());
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const Bytes> bytes() const { return bytes_; }

  /// ValueError where a buffer has a size alone.
  void expect_memory() const {
    if (in_memory_) return;
    throw nb::value_error("these bytes are not in memory: fetch the spans before looking at them");
  }

  /// The bytes of one span; IndexError, beginning with `where`, when they are not there.
  [[nodiscard]] Bytes at(const std::string& where, std::int64_t shard, std::int64_t start,
                         std::int64_t size) const {
    if (shard < 0 || static_cast<std::size_t>(shard) >= bytes_.size()) {
      throw nb::index_error((where + "buffer " + std::to_string(shard) +
                             " does not exist, there are " + std::to_string(bytes_.size()))
                                .c_str());
    }
    const Bytes buffer = bytes_[static_cast<std::size_t>(shard)];
    if (!fastio::fits(start, size, buffer.size())) {
      throw nb::index_error((where + std::to_string(size) + " bytes from " + std::to_string(start) +
                             " leave buffer " + std::to_string(shard) + " of " +
                             std::to_string(buffer.size()) + " bytes")
                                .c_str());
    }
    expect_memory();
    return buffer.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(size));
  }

 private:
  std::vector<Array<const std::uint8_t, 1>> arrays_;
  std::vector<Bytes> bytes_;
  bool in_memory_ = true;
};

using BuffersHandle = nb::handle_t<Buffers>;
using Checksums = std::optional<Array<const std::uint32_t, 1>>;

/// A fastio.types.spans.Spans: its arrays as Python has them, nothing in them has been checked
/// yet. `resolve` does that. What not every function needs is read when it is asked for.
class Spans {
 public:
  nb::object buffers;  // a Buffers
  Int32s shard;
  Int64s starts;
  Int64s sizes;

  [[nodiscard]] std::size_t size() const { return starts.size(); }

  /// The checksums to compare with; none where the spans have none, or `verify` is false.
  [[nodiscard]] Checksums checksums(bool verify) const;

  /// Where decoding may start in each value: spans of as many values, or none.
  [[nodiscard]] std::optional<Spans> intervals() const;

  /// Reads the attributes; false where one is missing or is not what it should be.
  bool read(nb::handle source, nb::detail::cleanup_list* cleanup) noexcept;

 private:
  nb::object python_;
};

using Kept = std::shared_ptr<void>;

/// Holds references to Python objects, whatever they are; let go with the GIL held.
template <typename... T>
Kept keep(T... objects) {
  return std::make_shared<std::tuple<T...>>(std::move(objects)...);
}

/// Lets one thread at a time use an object that must not be used by two: the second one gets a
/// RuntimeError. Neither the GIL nor a lock on the object keeps it out, since the first lets go of
/// them while it works without Python, or waits.
class SoleUse {
 public:
  SoleUse(std::atomic<bool>& used, const char* what) : used_(used) {
    if (used_.exchange(true, std::memory_order_acquire)) {
      throw std::runtime_error(std::string("another thread is using ") + what);
    }
  }
  SoleUse(const SoleUse&) = delete;
  SoleUse& operator=(const SoleUse&) = delete;
  ~SoleUse() { used_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& used_;
};

/// Waits without the GIL, and looks for Ctrl-C now and then; false when not done in time (negative:
/// for ever). The job is one of this process.
bool wait_for(fastio::Job& job, double timeout_s);

/// A job and the Python objects whose memory it uses.
class PyJob {
 public:
  PyJob(std::shared_ptr<fastio::Job> job, Kept kept)
      : job_(std::move(job)), kept_(std::move(kept)) {}
  PyJob(PyJob&&) = default;

  ~PyJob() {
    if (!job_) return;
    if (job_->foreign()) {  // its mutex may be locked for ever: it leaks, see Job
      new std::shared_ptr<fastio::Job>(std::move(job_));
      return;
    }
    if (job_->done()) return;
    const WithoutGil released;
    job_->cancel();
    (void)job_->wait(-1);
  }

  [[nodiscard]] bool done() const { return job_->done(); }
  void cancel() {
    if (!job_->foreign()) job_->cancel();
  }

  bool wait(double timeout_s) {
    if (!job_->done() && job_->foreign()) {
      throw std::runtime_error(
          "this job was begun before a fork and its threads live in the parent: begin it anew "
          "in the child");
    }
    if (!wait_for(*job_, timeout_s)) return false;
    kept_.reset();  // the arrays may go now, the job itself may stay
    return true;
  }

 private:
  std::shared_ptr<fastio::Job> job_;
  Kept kept_;
};

/// The one log of all pools here.
fastio::RangeLog& range_log();

/// A pool whose end is waited for without the GIL, and whose work the log is told of.
class PyPool : public fastio::ThreadPool {
 public:
  explicit PyPool(std::size_t threads) : ThreadPool(threads, &range_log()) {}
  ~PyPool() { close(); }

  void close() {
    const WithoutGil released;
    ThreadPool::close();
  }
};

using StatusArray = Array<std::int32_t, 1>;

/// Where a batch is worked on: a pool, or the calling thread.
using PoolHandle = std::optional<nb::handle_t<PyPool>>;

/// How a batch is cut up.
struct Cut {
  std::size_t count;
  std::size_t grain;
};

/// Begins the task on the pool, or does it here when there is none.
std::shared_ptr<fastio::Job> submit(std::unique_ptr<fastio::Task> task, Cut cut,
                                    const PoolHandle& handle);

/// The same for a job of Python's, which keeps the objects whose memory the task uses.
PyJob begin(std::unique_ptr<fastio::Task> task, Cut cut, const PoolHandle& handle, Kept kept);

/// ValueError where an array is not as long as `starts`.
void expect_length(const char* name, std::size_t found, std::size_t expected);

/// Pointers for all spans; IndexError naming the first that leaves its buffer, ValueError where
/// they are not in memory.
std::unique_ptr<Bytes[]> resolve(const Spans& spans);

/// The same for the `count` spans from `first` on.
std::unique_ptr<Bytes[]> resolve(const Spans& spans, std::size_t first, std::size_t count);

/// IndexError naming the first span that leaves its buffer, which need not be in memory.
void expect_inside(const Spans& spans);

/// The checksums of a batch of `count`, or null where there are none.
const std::uint32_t* checked(const Checksums& checksums, std::size_t count);

/// A task that copies values into rows, or puts their planes together, 1, 3 or 4 of them; 0: there
/// are none. ValueError for other numbers of planes.
std::unique_ptr<fastio::Task> rows_task(std::unique_ptr<Bytes[]> spans, const fastio::Rows& rows,
                                        std::size_t planes);

/// How many samples of about `bytes` each a thread grabs at a time.
std::size_t grain_for(std::size_t bytes);

/// Writable bytes of a ring, which get them back when the array dies.
ByteArray acquire(BufferRing& ring, std::size_t nbytes);

/// Tells the garbage collector what a T refers to: its `traverse(visit, arg)` visits each Python
/// object that it owns and that may lead back to it. Nothing is cleared: every circle also passes
/// through an object of Python's that can be.
template <typename T>
int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->traverse(visit, arg) : 0;
}

template <typename T>
PyType_Slot traversed[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse<T>)}, {0, nullptr}};

void bind_batch_loop(nb::module_& m);
void bind_batch_plans(nb::module_& m);
void bind_batches(nb::module_& m);
void bind_files(nb::module_& m);
void bind_index(nb::module_& m);
void bind_jpeg_frames(nb::module_& m);
void bind_key_set(nb::module_& m);
void bind_lmdb_pages(nb::module_& m);
void bind_look_up(nb::module_& m);
void bind_masks(nb::module_& m);
void bind_note_points(nb::module_& m);
void bind_range_log(nb::module_& m);
void bind_read_plans(nb::module_& m);
void bind_row_batches(nb::module_& m);
void bind_spans();
void bind_records(nb::module_& m);
void bind_tar_members(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_transcode(nb::module_& m);
void bind_token_batches(nb::module_& m);
void bind_tokens(nb::module_& m);
void bind_transforms(nb::module_& m);

}  // namespace fastio::python

namespace nanobind::detail {

/// Reads the attributes of a Spans; the arrays are not converted. What lacks one of them, or has
/// an array of another dtype, is a TypeError.
template <>
struct type_caster<fastio::python::Spans> {
  NB_TYPE_CASTER(fastio::python::Spans, const_name("fastio.types.spans.Spans"))

  bool from_python(handle source, std::uint32_t, cleanup_list* cleanup) noexcept {
    return value.read(source, cleanup);
  }
};

}  // namespace nanobind::detail
