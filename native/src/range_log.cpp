#include "fastio/range_log.h"

#include <time.h>
#include <unistd.h>

#include <new>
#include <stdexcept>
#include <utility>

namespace fastio {

bool RangeLog::start(std::size_t most) noexcept {
  const std::lock_guard lock(mutex_);
  ranges_.clear();
  try {
    ranges_.reserve(most);
  } catch (const std::exception&) {
    return false;
  }
  most_ = most;
  dropped_ = 0;
  pid_ = getpid();
  on_.store(true, std::memory_order_relaxed);
  return true;
}

std::vector<Range> RangeLog::stop(std::size_t& dropped) noexcept {
  const std::lock_guard lock(mutex_);
  on_.store(false, std::memory_order_relaxed);
  dropped = std::exchange(dropped_, 0);
  return std::exchange(ranges_, {});
}

void RangeLog::add(const Range& range) noexcept {
  // In a forked child the mutex may be locked by a thread that does not exist there.
  if (!on() || pid_ != getpid()) return;
  const std::lock_guard lock(mutex_);
  if (!on()) return;
  if (ranges_.size() < most_) {
    ranges_.push_back(range);  // within what is reserved
  } else {
    ++dropped_;
  }
}

std::int64_t RangeLog::now_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace fastio
