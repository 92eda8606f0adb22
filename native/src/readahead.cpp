#include "fastio/readahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fastio {
namespace {

/// Spans with at most this much between them are one request: reading it costs less than
/// asking again.
constexpr std::uintptr_t mergeable_gap = 128 * 1024;

class WillNeedTask final : public Task {
 public:
  WillNeedTask(std::unique_ptr<Bytes[]> spans, std::size_t count) noexcept
      : spans_(std::move(spans)), count_(count) {}

  void run(Worker&, std::size_t, std::size_t) noexcept override {
    std::sort(spans_.get(), spans_.get() + count_,
              [](Bytes a, Bytes b) { return a.data() < b.data(); });
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (spans_[i].empty()) continue;
      const auto start = reinterpret_cast<std::uintptr_t>(spans_[i].data());
      if (last != 0 && start <= last + mergeable_gap) {
        last = std::max(last, start + spans_[i].size());
        continue;
      }
      advise(first, last);
      first = start;
      last = start + spans_[i].size();
    }
    advise(first, last);
  }

 private:
  static void advise(std::uintptr_t first, std::uintptr_t last) noexcept {
    if (first == last) return;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    first -= first % page;
    // A gap may hold the end of one mapping and the start of another: the kernel then
    // answers ENOMEM but has read what is mapped.
    madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);
  }

  const std::unique_ptr<Bytes[]> spans_;
  const std::size_t count_;
};

}  // namespace

std::unique_ptr<Task> will_need_task(std::unique_ptr<Bytes[]> spans, std::size_t count) noexcept {
  return std::make_unique<WillNeedTask>(std::move(spans), count);
}

}  // namespace fastio
