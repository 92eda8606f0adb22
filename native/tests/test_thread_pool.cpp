// The pool: every sample once, in order of submission, through cancel, close and fork.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "check.h"
#include "core/thread_pool.h"

// Neither TSan nor qemu allows threads in the child of a process with threads.
#if defined(__SANITIZE_THREAD__) || defined(FASTIO_TESTS_EMULATED)
#define NO_THREADS_AFTER_FORK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK 1
#endif
#endif

namespace {

using fastio::Job;
using fastio::Task;
using fastio::ThreadPool;
using Counts = std::vector<std::uint8_t>;

class CountTask final : public Task {
 public:
  explicit CountTask(Counts& counts) : counts_(counts) {}
  void run(fastio::Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) ++counts_[i];
  }

 private:
  Counts& counts_;
};

/// Blocks its first sample until `go`.
class GateTask final : public Task {
 public:
  GateTask(std::atomic<bool>& go, std::atomic<int>& ran) : go_(go), ran_(ran) {}
  [[nodiscard]] int waiting() const { return waiting_.load(); }
  void run(fastio::Worker&, std::size_t first, std::size_t last) noexcept override {
    ++waiting_;
    while (!go_.load()) std::this_thread::yield();
    ran_ += static_cast<int>(last - first);
  }

 private:
  std::atomic<bool>& go_;
  std::atomic<int>& ran_;
  std::atomic<int> waiting_ = 0;
};

std::shared_ptr<Job> counting(Counts& counts, std::size_t grain) {
  return std::make_shared<Job>(std::make_unique<CountTask>(counts), counts.size(), grain);
}

/// Ranges of threads cover all samples, once, while the log is on; too many are counted.
void test_ranges() {
  fastio::RangeLog log;
  std::size_t dropped = 0;
  {
    ThreadPool pool(3, &log);
    Counts unseen(100);
    EXPECT(pool.submit(counting(unseen, 1)));
    pool.close();
  }
  EXPECT(log.stop(dropped).empty());

  EXPECT(log.start(1000));
  {
    ThreadPool pool(3, &log);
    std::vector<Counts> counts(10, Counts(100));
    for (Counts& each : counts) EXPECT(pool.submit(counting(each, 1)));
    pool.close();
  }
  std::size_t samples = 0;
  for (const fastio::Range& range : log.stop(dropped)) {
    EXPECT(range.start_ns <= range.stop_ns);
    EXPECT(range.thread != getpid());
    EXPECT(std::string_view(range.what) == "fastio.work");
    samples += range.samples;
  }
  EXPECT(samples == 1000);
  EXPECT(dropped == 0);

  EXPECT(log.start(2));
  for (int i = 0; i < 5; ++i) log.add({1, 0, 1, "fastio.work", 1});
  EXPECT(log.stop(dropped).size() == 2);
  EXPECT(dropped == 3);
}

void test_every_sample_once() {
  ThreadPool pool(3);
  for (const std::size_t grain : {1, 7, 64}) {
    for (std::size_t size = 0; size < 300; size += 13) {
      Counts counts(size);
      const auto job = counting(counts, grain);
      EXPECT(pool.submit(job));
      EXPECT(job->wait(-1));
      EXPECT(counts == Counts(size, 1));
    }
  }
}

void test_many_jobs_in_flight() {
  ThreadPool pool(2);
  std::vector<Counts> counts(500, Counts(20));
  std::vector<std::shared_ptr<Job>> jobs;
  for (auto& each : counts) {
    jobs.push_back(counting(each, 3));
    EXPECT(pool.submit(jobs.back()));
  }
  for (const auto& job : jobs) EXPECT(job->wait(-1));
  for (const auto& each : counts) EXPECT(each == Counts(20, 1));
}

/// Whatever the number of threads that may begin jobs, and however it changes meanwhile.
void test_fewer_threads_do_the_same() {
  ThreadPool pool(4);
  EXPECT(pool.used() == 4);
  EXPECT(pool.cpu_seconds() == 0);
  for (const std::size_t used : {1, 3, 2, 4, 0, 9}) {
    Counts counts(1000, 0);
    const auto before = counting(counts, 7);
    EXPECT(pool.submit(before));
    pool.use(used);
    EXPECT(pool.used() == (used == 0 ? 1 : used == 9 ? 4 : used));
    EXPECT(before->wait(-1));
    EXPECT(counts == Counts(1000, 1));
  }
  EXPECT(pool.cpu_seconds() > 0);
  Counts left(100, 0);
  const auto last = counting(left, 1);
  pool.use(1);
  EXPECT(pool.submit(last));
  pool.close();
  EXPECT(left == Counts(100, 1));
}

void test_cancel_skips_the_rest() {
  ThreadPool pool(1);
  std::atomic<bool> go = false;
  std::atomic<int> ran = 0;
  const auto job = std::make_shared<Job>(std::make_unique<GateTask>(go, ran), 100, 1);
  EXPECT(pool.submit(job));
  EXPECT(!job->wait(0.001));
  job->cancel();
  job->cancel();
  go = true;
  EXPECT(job->wait(-1));
  EXPECT(ran <= 1);
}

void test_close_finishes_jobs() {
  Counts counts(1000);
  const auto job = [&] {
    ThreadPool pool(2);
    const auto begun = counting(counts, 1);
    EXPECT(pool.submit(begun));
    pool.close();
    pool.close();
    EXPECT(begun->done());
    EXPECT(!pool.submit(counting(counts, 1)));
    return begun;
  }();
  EXPECT(counts == Counts(1000, 1));
}

#if !defined(NO_THREADS_AFTER_FORK)
void test_child_of_a_fork_starts_anew() {
  ThreadPool pool(2);
  std::atomic<bool> go = false;
  std::atomic<int> ran = 0;
  auto gate = std::make_unique<GateTask>(go, ran);
  const GateTask& at_gate = *gate;
  const auto blocked = std::make_shared<Job>(std::move(gate), 4, 1);
  EXPECT(pool.submit(blocked));
  // A thread that is still starting may hold a lock of the sanitizer's allocator, for ever in the
  // child.
  while (at_gate.waiting() < 2) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang is a failure
    Counts counts(50);
    const auto job = counting(counts, 1);
    const bool good = blocked->foreign() && !blocked->done() && pool.submit(job) && job->wait(-1) &&
                      counts == Counts(50, 1);
    pool.close();
    _exit(good ? 0 : 1);
  }
  go = true;
  EXPECT(blocked->wait(-1));
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace

int main() {
  test_ranges();
  test_every_sample_once();
  test_many_jobs_in_flight();
  test_fewer_threads_do_the_same();
  test_cancel_skips_the_rest();
  test_close_finishes_jobs();
#if !defined(NO_THREADS_AFTER_FORK)
  test_child_of_a_fork_starts_anew();
#endif
  return failures;
}
