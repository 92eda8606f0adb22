#include "fastio/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "fastio/worker.h"

namespace fastio {

struct ThreadPool::State {
  const pid_t pid = getpid();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> jobs;  // the front one is being worked on
  std::vector<std::thread> threads;
  bool closed = false;

  bool start(std::size_t count) noexcept;
  void loop() noexcept;
};

namespace {

/// Leaves signals to the interpreter's threads; faults still end the process as they should.
void block_signals() noexcept {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&set, fault);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace

bool ThreadPool::State::start(std::size_t count) noexcept {
  while (threads.size() < count) {
    try {
      threads.emplace_back([this] { loop(); });
    } catch (const std::system_error&) {
      break;  // the limit of threads is reached: fewer do the same work
    }
  }
  return !threads.empty();
}

void ThreadPool::State::loop() noexcept {
  block_signals();
  pthread_setname_np(pthread_self(), "fastio");
  Worker worker;
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closed || !jobs.empty(); });
    if (jobs.empty()) return;
    std::shared_ptr<Job> job = jobs.front();
    lock.unlock();
    job->work(worker);
    lock.lock();
    if (!jobs.empty() && jobs.front() == job) jobs.pop_front();
  }
}

ThreadPool::ThreadPool(std::size_t threads) noexcept
    : threads_(std::max<std::size_t>(threads, 1)), state_(new State) {}

ThreadPool::~ThreadPool() {
  close();
  State* state = state_.load();
  if (state->pid == getpid()) delete state;
}

ThreadPool::State* ThreadPool::current() noexcept {
  State* state = state_.load(std::memory_order_acquire);
  if (state->pid == getpid()) return state;
  // A fork: the old state's mutex may be locked by a thread that does not exist here, so
  // only `closed`, which no thread changes but under the caller's hands, is looked at.
  auto fresh = std::make_unique<State>();
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

}  // namespace fastio
