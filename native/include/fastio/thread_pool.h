/// Threads that work on jobs in the order of submission.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "fastio/job.h"
#include "fastio/range_log.h"

namespace fastio {

/// A number of threads, started with the first job; how many of them work can be changed.
///
/// Jobs are begun first in, first out; a thread that finds nothing left to grab in one job
/// turns to the next while others still finish the former, so none idles between batches.
/// All members are thread-safe. Each thread owns one Worker (decoder handles and memory).
///
/// After a fork the child's pool has no threads and no jobs; it starts anew with the first
/// submit, and what belonged to the parent's threads is left alone (not freed, not joined).
class ThreadPool {
 public:
  /// `log`, which outlives the pool, gets a range for each thread's part of a job while it is on.
  explicit ThreadPool(std::size_t threads, RangeLog* log = nullptr) noexcept;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();  ///< as close()

  [[nodiscard]] std::size_t threads() const noexcept { return threads_; }

  /// Lets only so many of the threads begin jobs, 1 to threads(); the others finish what they
  /// are at, and sleep.
  void use(std::size_t threads) noexcept;

  /// As told by `use`, or threads().
  [[nodiscard]] std::size_t used() noexcept;

  /// CPU time of the threads so far, in seconds; 0 before the first job and after close().
  [[nodiscard]] double cpu_seconds() noexcept;

  /// False when the pool is closed or not one thread could be started; the job is then not
  /// begun.
  [[nodiscard]] bool submit(std::shared_ptr<Job> job) noexcept;

  /// Finishes the jobs under way and joins the threads; a second call does nothing.
  void close() noexcept;

 private:
  struct State;
  State* current() noexcept;

  const std::size_t threads_;
  RangeLog* const log_;
  std::atomic<State*> state_;
};

}  // namespace fastio
