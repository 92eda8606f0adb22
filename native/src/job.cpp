#include "fastio/job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace fastio {

Job::Job(std::unique_ptr<Task> task, std::size_t count, std::size_t grain) noexcept
    : task_(std::move(task)),
      count_(count),
      grain_(std::max<std::size_t>(grain, 1)),
      pid_(getpid()),
      done_(count == 0) {}

std::size_t Job::work(Worker& worker) noexcept {
  for (std::size_t samples = 0;;) {
    const std::size_t first = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (first >= count_) return samples;
    const std::size_t last = std::min(first + grain_, count_);
    task_->run(worker, first, last);
    samples += last - first;
    finish(last - first);
  }
}

bool Job::wait(double timeout_s) noexcept {
  if (done()) return true;
  std::unique_lock lock(mutex_);
  if (timeout_s < 0) {
    changed_.wait(lock, [this] { return done(); });
    return true;
  }
  // A century is for ever; beyond it the clock's arithmetic would overflow.
  const std::chrono::duration<double> timeout(std::min(timeout_s, 3e9));
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout);
  return changed_.wait_for(lock, nanoseconds, [this] { return done(); });
}

void Job::cancel() noexcept {
  const std::size_t grabbed = std::min(next_.exchange(count_), count_);
  if (grabbed < count_) finish(count_ - grabbed);
}

bool Job::foreign() const noexcept {
  return pid_ != getpid();
}

void Job::finish(std::size_t samples) noexcept {
  if (finished_.fetch_add(samples, std::memory_order_acq_rel) + samples < count_) return;
  const std::lock_guard lock(mutex_);
  done_.store(true, std::memory_order_release);
  changed_.notify_all();
}

}  // namespace fastio
