#include "core/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "pictures/worker.h"
#include "platform/platform.h"

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

struct ThreadPool::State {
  const pid_t pid = getpid();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> jobs;  // the front one is being worked on
  std::vector<std::thread> threads;
  bool closed = false;
  std::size_t used;  // threads from this number on begin nothing
  RangeLog* const log;

  State(std::size_t most, RangeLog* ranges) noexcept : used(most), log(ranges) {}
  bool start(std::size_t count) noexcept;
  void loop(std::size_t number) noexcept;
};

namespace {

/// Leaves signals to the interpreter's threads; faults still end the process as they should.
void block_signals() noexcept {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&set, fault);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

/// Works on the job, and tells the log of it where somebody asked for that.
void work(Job& job, Worker& worker, RangeLog* log) noexcept {
  if (log == nullptr || !log->on()) {
    job.work(worker);
    return;
  }
  const std::int64_t start_ns = RangeLog::now_ns();
  const std::size_t samples = job.work(worker);
  if (samples > 0)
    log->add({platform::thread_id(), start_ns, RangeLog::now_ns(), job.what(), samples});
}

}  // namespace

bool ThreadPool::State::start(std::size_t count) noexcept {
  while (threads.size() < count) {
    try {
      threads.emplace_back([this, number = threads.size()] { loop(number); });
    } catch (const std::system_error&) {
      break;  // the limit of threads is reached: fewer do the same work
    }
  }
  return !threads.empty();
}

void ThreadPool::State::loop(std::size_t number) noexcept {
  block_signals();
  platform::name_thread("fastio");
  Worker worker;
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return closed || (!jobs.empty() && number < used); });
    if (jobs.empty() || number >= used) return;
    std::shared_ptr<Job> job = jobs.front();
    lock.unlock();
    work(*job, worker, log);
    lock.lock();
    if (!jobs.empty() && jobs.front() == job) jobs.pop_front();
  }
}

ThreadPool::ThreadPool(std::size_t threads, RangeLog* log) noexcept
    : threads_(std::max<std::size_t>(threads, 1)), log_(log), state_(new State(threads_, log)) {}

ThreadPool::~ThreadPool() {
  close();
  State* state = state_.load();
  if (state->pid == getpid()) delete state;
}

ThreadPool::State* ThreadPool::current() noexcept {
  State* state = state_.load(std::memory_order_acquire);
  if (state->pid == getpid()) return state;
  // A fork: the old state's mutex may be locked by a thread that does not exist here, so
  // only `closed` and `used`, which no thread changes but under the caller's hands, are
  // looked at.
  auto fresh = std::make_unique<State>(state->used, log_);
  fresh->closed = state->closed;
  if (state_.compare_exchange_strong(state, fresh.get())) return fresh.release();
  return state;
}

bool ThreadPool::submit(std::shared_ptr<Job> job) noexcept {
  if (job->done()) return true;
  State* state = current();
  {
    const std::lock_guard lock(state->mutex);
    if (state->closed || !state->start(threads_)) return false;
    state->jobs.push_back(std::move(job));
  }
  state->changed.notify_all();
  return true;
}

void ThreadPool::use(std::size_t threads) noexcept {
  State* state = current();
  {
    const std::lock_guard lock(state->mutex);
    state->used = std::clamp<std::size_t>(threads, 1, threads_);
  }
  state->changed.notify_all();
}

std::size_t ThreadPool::used() noexcept {
  State* state = current();
  const std::lock_guard lock(state->mutex);
  return state->used;
}

double ThreadPool::cpu_seconds() noexcept {
  State* state = current();
  const std::lock_guard lock(state->mutex);
  double total = 0;
  for (std::thread& thread : state->threads) total += platform::cpu_seconds(thread.native_handle());
  return total;
}

void ThreadPool::close() noexcept {
  State* state = current();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state->mutex);
    state->closed = true;
    threads.swap(state->threads);
  }
  state->changed.notify_all();
  for (std::thread& thread : threads) thread.join();
}

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
