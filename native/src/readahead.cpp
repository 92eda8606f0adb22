#include "fastio/readahead.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

namespace fastio {
namespace {

constexpr std::uintptr_t block_bytes = 4 << 20;
constexpr std::uintptr_t dense_share = 8;  // of a block, from which on all of it is read

/// Spans with at most this much between them are one request: some 30 us at 1 GB/s, about
/// what a request of its own costs.
constexpr std::uintptr_t gap_bytes = 32 * 1024;

/// The kernel answers longer advice by its read-ahead window alone, and drops the rest without
/// a word; 128 KiB is the window's usual size (and NFS's and FUSE's).
constexpr std::uintptr_t advice_bytes = 128 * 1024;

constexpr std::size_t places_looked_at = 64;

std::uintptr_t begin_of(Bytes span) noexcept {
  return reinterpret_cast<std::uintptr_t>(span.data());
}

long major_faults() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

/// Whether a byte that is looked at has to be fetched from the disk: a major fault of this
/// thread. Unlike mincore it knows of files of other users, unlike RWF_NOWAIT it needs no
/// descriptor and works on all file systems. At the first such byte it has seen enough.
bool is_cold(std::span<const Bytes> spans) noexcept {
  std::size_t total = 0;
  for (const Bytes span : spans) total += span.size();
  const std::size_t step = std::max<std::size_t>(total / places_looked_at, 1);
  const long before = major_faults();
  std::size_t next = step / 2;
  for (const Bytes span : spans) {
    for (; next < span.size(); next += step) {
      (void)*static_cast<const volatile std::uint8_t*>(&span[next]);
      if (major_faults() != before) return true;
    }
    next -= span.size();
  }
  return false;
}

void advise(Stretch stretch) noexcept {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  stretch.first -= stretch.first % page;
  for (std::uintptr_t at = stretch.first; at < stretch.last; at += advice_bytes) {
    // A gap may hold the end of one mapping and the start of another: the kernel then
    // answers ENOMEM but has read what is mapped.
    madvise(reinterpret_cast<void*>(at), std::min(advice_bytes, stretch.last - at), MADV_WILLNEED);
  }
}

class ReadAheadTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_ahead"; }

  ReadAheadTask(std::unique_ptr<Bytes[]> spans, std::size_t count, bool looks) noexcept
      : spans_(std::move(spans)), count_(count), looks_(looks) {}

  void run(Worker&, std::size_t, std::size_t) noexcept override {
    const std::span<Bytes> all(spans_.get(), count_);
    if (looks_ && !is_cold(all)) return;
    advise_all(all);
  }

 private:
  const std::unique_ptr<Bytes[]> spans_;
  const std::size_t count_;
  const bool looks_;
};

}  // namespace

std::vector<Stretch> stretches(std::span<Bytes> spans) {
  std::sort(spans.begin(), spans.end(), [](Bytes a, Bytes b) { return a.data() < b.data(); });
  std::vector<Stretch> found;
  const auto add = [&](std::uintptr_t first, std::uintptr_t last, std::uintptr_t gap) {
    if (first == last) return;
    if (!found.empty() && first <= found.back().last + gap) {
      found.back().last = std::max(found.back().last, last);
    } else {
      found.push_back({first, last});
    }
  };
  for (std::size_t i = 0; i < spans.size();) {
    const std::uintptr_t block = begin_of(spans[i]) / block_bytes;
    std::uintptr_t last = 0;
    std::uintptr_t needed = 0;
    std::size_t end = i;
    for (; end < spans.size() && begin_of(spans[end]) / block_bytes == block; ++end) {
      last = std::max(last, begin_of(spans[end]) + spans[end].size());
      needed += spans[end].size();
    }
    if (needed >= (last - begin_of(spans[i])) / dense_share &&
        needed >= block_bytes / dense_share) {
      add(begin_of(spans[i]), last, gap_bytes);
    } else {
      for (std::size_t k = i; k < end; ++k) {
        add(begin_of(spans[k]), begin_of(spans[k]) + spans[k].size(), gap_bytes);
      }
    }
    i = end;
  }
  return found;
}

void advise_all(std::span<Bytes> spans) noexcept {
  try {
    for (const Stretch stretch : stretches(spans)) advise(stretch);
  } catch (const std::bad_alloc&) {
    // Without memory for a list nothing is read ahead: it is read when it is needed.
  }
}

std::unique_ptr<Task> read_ahead_task(std::unique_ptr<Bytes[]> spans, std::size_t count,
                                      bool looks) noexcept {
  return std::make_unique<ReadAheadTask>(std::move(spans), count, looks);
}

}  // namespace fastio
