/// One batch under way: samples that threads grab, and somebody who waits for them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

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

}  // namespace fastio
