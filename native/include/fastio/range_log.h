/// What threads of pools worked on and when, for a profiler that draws it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fastio {

/// A stretch of work of one thread on one job: nanoseconds of CLOCK_REALTIME, which is what
/// torch.profiler's traces count in too. `what` is the task's name, a string literal.
struct Range {
  pid_t thread;
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

}  // namespace fastio
