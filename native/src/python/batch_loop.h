/// Groups of batches that native code makes, as the loop of a loader knows them.
#pragma once

#include <array>
#include <bit>
#include <span>

#include "python/module.h"

namespace fastio::python {

/// Counters of a loader, shared by its iterations; without a GIL, the lock of the Python object
/// guards them.
struct BatchCounts {
  static constexpr std::size_t buckets = 26;  // of waits: the last one takes all longer ones

  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::int64_t batch_bytes = 0;
  std::int64_t tokens = 0;
  std::int64_t slots = 0;
  std::int64_t decoded_on_device = 0;
  double loading_s = 0;
  double first_batch_s = 0;
  std::array<std::int64_t, buckets> waits{};

  void count(std::int64_t size, std::int64_t nbytes, double waited_s, bool first) {
    ++batches;
    samples += size;
    batch_bytes = std::max(batch_bytes, nbytes);
    loading_s += waited_s;
    if (first) {
      first_batch_s = waited_s;
    } else {
      const auto us = static_cast<std::uint64_t>(std::max(waited_s, 0.0) * 1e6);
      ++waits[std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(us)), buckets - 1)];
    }
  }
};

/// A batch as the training loop gets it, and what is counted of it.
struct ReadyBatch {
  nb::object batch;
  std::int64_t samples;
  std::int64_t nbytes;
  std::int64_t tokens = 0;
  std::int64_t slots = 0;
};

/// Neighbouring batches of an epoch, looked up together. Each is begun once and finished once, in
/// order, with the GIL held, and without a GIL the lock of the Python object; several may be under
/// way.
class BatchGroup {
 public:
  /// `proof` says which samples they are, for receipts. `repair(k, status)` makes batch k by
  /// Python: for one with bad samples, whose status it gets, or None in a forked child.
  BatchGroup(std::size_t count, nb::object proof, nb::object repair)
      : count_(count), proof_(std::move(proof)), repair_(std::move(repair)) {}
  BatchGroup(const BatchGroup&) = delete;
  BatchGroup& operator=(const BatchGroup&) = delete;
  virtual ~BatchGroup() = default;

  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] const nb::object& proof() const { return proof_; }

  /// Has threads work on batch k.
  virtual void begin(std::size_t k) = 0;

  /// Waits for batch k; nothing if only `repair` can make it.
  virtual std::optional<ReadyBatch> finish(std::size_t k) = 0;

  /// What `repair` returns for batch k, which `finish` has left to it.
  virtual nb::object repair(std::size_t k) = 0;

  /// Lets go of whatever is under way.
  virtual void cancel() = 0;

  /// Visits the Python objects that it refers to; see `traversed`.
  virtual int traverse(visitproc visit, void* arg) const {
    Py_VISIT(proof_.ptr());
    Py_VISIT(repair_.ptr());
    return 0;
  }

  std::size_t begun = 0;  ///< batches, counted by whoever calls

 protected:
  [[nodiscard]] const nb::object& repairer() const { return repair_; }

 private:
  const std::size_t count_;
  const nb::object proof_;
  const nb::object repair_;
};

/// A job of ours. In a forked child its threads are missing and its mutex may be locked for ever:
/// there it leaks.
class OwnJob {
 public:
  OwnJob() = default;
  explicit OwnJob(std::shared_ptr<fastio::Job> job) : job_(std::move(job)) {}
  OwnJob(OwnJob&&) = default;
  OwnJob& operator=(OwnJob&& other) noexcept {
    std::swap(job_, other.job_);
    return *this;
  }
  ~OwnJob();

  void cancel();

  /// Waits without the GIL; false in a forked child, where it would never end.
  [[nodiscard]] bool wait();

 private:
  std::shared_ptr<fastio::Job> job_;
};

/// ValueError unless `cuts` ascend from 0 to `count`.
void expect_cuts(const Int64s& cuts, std::size_t count);

// Tensors over memory of ours, made by DLPack: the only way of making one that needs neither
// torch's headers nor an array of numpy in between.

/// An array of `dtype` from `data` on. Without `strides` (in elements) it is in C order.
struct TensorLayout {
  void* data;
  nb::dlpack::dtype dtype;
  std::span<const std::int64_t> shape;  ///< at most `most_dimensions`
  std::span<const std::int64_t> strides = {};
};

constexpr std::size_t most_dimensions = 8;

/// A tensor made by `from_dlpack`, torch's function of that name, or an array by ours. It keeps
/// `owner`, which may die in any thread, with or without the GIL.
nb::object make_tensor(const nb::object& from_dlpack, std::shared_ptr<void> owner,
                       const TensorLayout& layout);

}  // namespace fastio::python
