#include "files/readahead.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

#include "platform/platform.h"

namespace fastio {
namespace {

constexpr std::uint64_t block_bytes = 4 << 20;
constexpr std::uint64_t dense_share = 8;  // of a block, from which on all of it is read

/// Spans with at most this much between them are one request: some 30 us at 1 GB/s, about
/// what a request of its own costs.
constexpr std::uint64_t gap_bytes = 32 * 1024;

/// The kernel answers longer advice by its read-ahead window alone, and drops the rest without
/// a word; 128 KiB is the window's usual size (and NFS's and FUSE's).
constexpr std::uint64_t advice_bytes = 128 * 1024;

constexpr std::size_t places_looked_at = 64;

/// Samples of a store mostly come in its order, which a look finds out sooner than a sort.
template <typename Span, typename Less>
void sort_unless_sorted(std::span<Span> spans, Less less) {
  if (!std::is_sorted(spans.begin(), spans.end(), less)) {
    std::sort(spans.begin(), spans.end(), less);
  }
}

/// Whether a byte that is looked at has to be fetched from the disk: a major fault of this
/// thread. Unlike mincore it knows of files of other users, unlike RWF_NOWAIT it needs no
/// descriptor and works on all file systems. At the first such byte it has seen enough.
bool is_cold(std::span<const Bytes> spans) noexcept {
  std::size_t total = 0;
  for (const Bytes span : spans) total += span.size();
  const std::size_t step = std::max<std::size_t>(total / places_looked_at, 1);
  const long before = platform::major_faults();
  std::size_t next = step / 2;
  for (const Bytes span : spans) {
    for (; next < span.size(); next += step) {
      (void)*static_cast<const volatile std::uint8_t*>(&span[next]);
      if (platform::major_faults() != before) return true;
    }
    next -= span.size();
  }
  return false;
}

void advise_mapped(Stretch stretch) noexcept {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  stretch.first -= stretch.first % page;
  for (std::uint64_t at = stretch.first; at < stretch.last; at += advice_bytes) {
    // A gap may hold the end of one mapping and the start of another: the kernel then
    // answers ENOMEM but has read what is mapped.
    madvise(reinterpret_cast<void*>(at), std::min(advice_bytes, stretch.last - at), MADV_WILLNEED);
  }
}

class ReadAheadTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_ahead"; }

  ReadAheadTask(std::unique_ptr<Bytes[]> spans, std::size_t count) noexcept
      : spans_(std::move(spans)), count_(count) {}

  void run(Worker&, std::size_t, std::size_t) noexcept override {
    read_mapped_ahead({spans_.get(), count_});
  }

 private:
  const std::unique_ptr<Bytes[]> spans_;
  const std::size_t count_;
};

class LookAheadTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.look_ahead"; }

  LookAheadTask(const SpanIndex& index, std::span<const std::int64_t> samples,
                bool with_checksums) noexcept
      : index_(index), samples_(samples), with_checksums_(with_checksums) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    std::call_once(begun_, [this] {
      try {
        read_index_ahead(index_, samples_, with_checksums_);
      } catch (const std::bad_alloc&) {
        // Without memory for a list, pages are read as they are compared.
      }
    });
    compare(index_, samples_.subspan(first, last - first), with_checksums_);
  }

 private:
  const SpanIndex& index_;
  const std::span<const std::int64_t> samples_;
  const bool with_checksums_;
  std::once_flag begun_;
};

class ReadFilesAheadTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_ahead"; }

  explicit ReadFilesAheadTask(std::vector<FileSpan> spans) noexcept : spans_(std::move(spans)) {}

  void run(Worker&, std::size_t, std::size_t) noexcept override {
    try {
      sort_unless_sorted(std::span<FileSpan>(spans_), [](const FileSpan& a, const FileSpan& b) {
        return std::tie(a.fd, a.bytes.first) < std::tie(b.fd, b.bytes.first);
      });
      std::vector<Stretch> needed;
      for (std::size_t i = 0; i < spans_.size();) {
        const int fd = spans_[i].fd;
        needed.clear();
        for (; i < spans_.size() && spans_[i].fd == fd; ++i) needed.push_back(spans_[i].bytes);
        advise_file(fd, needed);
      }
    } catch (const std::bad_alloc&) {
      // Without memory for a list nothing is read ahead: it is read when it is needed.
    }
  }

 private:
  std::vector<FileSpan> spans_;
};

}  // namespace

std::vector<Stretch> stretches(std::span<Stretch> spans) {
  sort_unless_sorted(spans, [](Stretch a, Stretch b) { return a.first < b.first; });
  std::vector<Stretch> found;
  const auto add = [&](std::uint64_t first, std::uint64_t last, std::uint64_t gap) {
    if (first == last) return;
    if (!found.empty() && first <= found.back().last + gap) {
      found.back().last = std::max(found.back().last, last);
    } else {
      found.push_back({first, last});
    }
  };
  for (std::size_t i = 0; i < spans.size();) {
    const std::uint64_t block = spans[i].first / block_bytes;
    std::uint64_t last = 0;
    std::uint64_t needed = 0;
    std::size_t end = i;
    for (; end < spans.size() && spans[end].first / block_bytes == block; ++end) {
      last = std::max(last, spans[end].last);
      needed += spans[end].last - spans[end].first;
    }
    if (needed >= (last - spans[i].first) / dense_share && needed >= block_bytes / dense_share) {
      add(spans[i].first, last, gap_bytes);
    } else {
      for (std::size_t k = i; k < end; ++k) add(spans[k].first, spans[k].last, gap_bytes);
    }
    i = end;
  }
  return found;
}

void advise_file(int fd, std::span<Stretch> spans) {
  for (const Stretch stretch : stretches(spans)) {
    for (std::uint64_t at = stretch.first; at < stretch.last; at += advice_bytes) {
      platform::read_ahead(fd, at, std::min(advice_bytes, stretch.last - at));
    }
  }
}

void advise_mappings(std::span<const Bytes> spans) noexcept {
  try {
    std::vector<Stretch> needed;
    needed.reserve(spans.size());
    for (const Bytes span : spans) {
      const auto first = reinterpret_cast<std::uintptr_t>(span.data());
      needed.push_back({first, first + span.size()});
    }
    for (const Stretch stretch : stretches(needed)) advise_mapped(stretch);
  } catch (const std::bad_alloc&) {
    // Without memory for a list nothing is read ahead: it is read when it is needed.
  }
}

void read_mapped_ahead(std::span<const Bytes> spans) noexcept {
  if (is_cold(spans)) advise_mappings(spans);
}

std::unique_ptr<Task> read_ahead_task(std::unique_ptr<Bytes[]> spans, std::size_t count) noexcept {
  return std::make_unique<ReadAheadTask>(std::move(spans), count);
}

void read_index_ahead(const SpanIndex& index, std::span<const std::int64_t> samples,
                      bool with_checksums) {
  constexpr std::size_t worth_a_look = 64;  // fewer are sooner asked for than looked at
  const auto coming = unseen(index, samples, with_checksums);
  if (coming.size() < worth_a_look) {
    advise_mappings(coming);
  } else {
    read_mapped_ahead(coming);
  }
}

std::unique_ptr<Task> look_ahead_task(const SpanIndex& index, std::span<const std::int64_t> samples,
                                      bool with_checksums) {
  return std::make_unique<LookAheadTask>(index, samples, with_checksums);
}

std::unique_ptr<Task> read_files_ahead_task(std::vector<FileSpan> spans) noexcept {
  return std::make_unique<ReadFilesAheadTask>(std::move(spans));
}

namespace {

constexpr std::int64_t skipped_bytes = 32 * 1024;  // read and thrown away rather than asked around
constexpr std::size_t most_parts = 512;            // of one call; the kernel allows 1024
constexpr std::int32_t ended = -1;

std::int64_t end_of(const SpanRead& read) noexcept {
  return read.start + static_cast<std::int64_t>(read.size);
}

void read_alone(const SpanRead& read) noexcept {
  std::size_t done = 0;
  while (done < read.size) {
    const ssize_t got = pread(read.fd, read.out + done, read.size - done,
                              read.start + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      *read.error = got < 0 ? errno : ended;
      return;
    }
    done += static_cast<std::size_t>(got);
  }
  *read.error = 0;
}

class ReadSpansTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read"; }

  explicit ReadSpansTask(std::vector<SpanRead> reads) noexcept : reads_(std::move(reads)) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    std::call_once(prepared_, [this] { prepare(); });
    const std::size_t count = reads_.size();
    const std::size_t stop = last * count / read_spans_steps;
    for (std::size_t i = first * count / read_spans_steps; i < stop;) i = read_run(i, stop);
  }

 private:
  void prepare() noexcept {
    std::sort(reads_.begin(), reads_.end(), [](const SpanRead& a, const SpanRead& b) {
      return std::tie(a.fd, a.start) < std::tie(b.fd, b.start);
    });
    advise();
  }

  void advise() noexcept {
    try {
      std::vector<Stretch> coming;
      coming.reserve(reads_.size());
      for (std::size_t i = 0; i < reads_.size();) {
        const int fd = reads_[i].fd;
        coming.clear();
        for (; i < reads_.size() && reads_[i].fd == fd; ++i) {
          const auto first = static_cast<std::uint64_t>(reads_[i].start);
          coming.push_back({first, first + reads_[i].size});
        }
        advise_file(fd, coming);
      }
    } catch (const std::bad_alloc&) {
      // Without memory for a list the kernel hears of each span when it is read.
    }
  }

  /// Reads the spans from `first` on that one call can fetch; the first one after them.
  [[nodiscard]] std::size_t read_run(std::size_t first, std::size_t stop) noexcept {
    std::array<iovec, most_parts> parts;
    std::array<std::uint8_t, skipped_bytes> sink;
    std::size_t used = 0;
    std::int64_t end = reads_[first].start;
    std::size_t last = first;
    for (; last < stop && used + 2 <= most_parts; ++last) {
      const SpanRead& read = reads_[last];
      const std::int64_t gap = read.start - end;
      if (read.fd != reads_[first].fd || gap < 0 || gap > skipped_bytes) break;
      if (gap > 0) parts[used++] = {sink.data(), static_cast<std::size_t>(gap)};
      parts[used++] = {read.out, read.size};
      end = end_of(read);
    }
    const SpanRead& begin = reads_[first];
    const ssize_t got = preadv(begin.fd, parts.data(), static_cast<int>(used), begin.start);
    const std::int64_t reached = begin.start + std::max<std::int64_t>(got, 0);
    for (std::size_t i = first; i < last; ++i) {
      if (end_of(reads_[i]) <= reached) {
        *reads_[i].error = 0;
      } else {
        read_alone(reads_[i]);  // a short answer, or an error: whose is it?
      }
    }
    return last;
  }

  std::vector<SpanRead> reads_;
  std::once_flag prepared_;
};

}  // namespace

std::unique_ptr<Task> read_spans_task(std::vector<SpanRead> reads) noexcept {
  return std::make_unique<ReadSpansTask>(std::move(reads));
}

}  // namespace fastio
