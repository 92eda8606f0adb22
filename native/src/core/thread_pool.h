/// One batch under way (Task, Job), the threads that work on batches in order of submission, and
/// which thread worked when on what, for a profiler.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace fastio {

class Worker;

/// What is to be done with the samples of a batch.
///
/// `run` is called from several threads at once, each time for other samples
/// [first, last); it must not throw. Destroyed by whichever thread lets go last, so a task
/// owns nothing that is bound to a thread (no Python objects).
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  virtual void run(Worker& worker, std::size_t first, std::size_t last) noexcept = 0;

  /// What a profiler calls this work: a string literal.
  [[nodiscard]] virtual const char* what() const noexcept { return "fastio.work"; }
};

/// A task, how far it has come, and a way to wait for it. Shared by std::shared_ptr: by the
/// one who waits and by the threads that work. All members are thread-safe.
///
/// A job belongs to the process that made it: after a fork no thread of the child works on
/// it. The child may call `foreign` and `done` only and must not destroy it (a mutex may be
/// locked for ever): it lets the reference leak.
class Job {
 public:
  /// `grain` samples are grabbed at a time: more for tiny ones, 1 for photographs.
  Job(std::unique_ptr<Task> task, std::size_t count, std::size_t grain) noexcept;

  /// Works until nothing is left to grab, and gives the number of samples done. Called by the
  /// pool's threads, or by the caller itself when there is no pool.
  std::size_t work(Worker& worker) noexcept;

  [[nodiscard]] const char* what() const noexcept { return task_->what(); }

  /// Blocks until all samples are done or `timeout_s` has passed (negative: for ever).
  [[nodiscard]] bool wait(double timeout_s) noexcept;

  /// Samples that nobody has grabbed yet are skipped; those being worked on are finished.
  void cancel() noexcept;

  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Whether another process (the parent before a fork) made this job.
  [[nodiscard]] bool foreign() const noexcept;

 private:
  void finish(std::size_t samples) noexcept;

  const std::unique_ptr<Task> task_;
  const std::size_t count_;
  const std::size_t grain_;
  const pid_t pid_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// What threads of pools worked on and when, for a profiler that draws it.

/// A stretch of work of one thread on one job: nanoseconds of CLOCK_REALTIME, which is what
/// torch.profiler's traces count in too. `what` is the task's name, a string literal.
struct Range {
  std::int64_t thread;  ///< as platform::thread_id() gives it
  std::int64_t start_ns;
  std::int64_t stop_ns;
  const char* what;
  std::size_t samples;
};

/// Ranges of all threads that are given this log, off until it is started, and bounded: what
/// no longer fits is counted and dropped. All members are thread-safe. A forked child that
/// inherits a log that is on adds nothing to it, and must not start or stop it.
class RangeLog {
 public:
  /// Forgets what there is and keeps the next `most` ranges. False when there is no memory.
  [[nodiscard]] bool start(std::size_t most) noexcept;

  /// Gives the ranges in the order in which they ended, and how many were dropped; is off then.
  [[nodiscard]] std::vector<Range> stop(std::size_t& dropped) noexcept;

  /// Whether anybody wants ranges: one load, for those who then need no clock.
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

  void add(const Range& range) noexcept;

  static std::int64_t now_ns() noexcept;

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<Range> ranges_;
  std::size_t most_ = 0;
  std::size_t dropped_ = 0;
  std::atomic<pid_t> pid_{0};
};

// Threads that work on jobs in the order of submission.

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
