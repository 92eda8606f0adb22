#include "fastio/read_spans.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

#include "fastio/readahead.h"

namespace fastio {
namespace {

constexpr std::int64_t gap_bytes = 32 * 1024;  // read and thrown away rather than asked around
constexpr std::size_t most_parts = 512;        // of one call; the kernel allows 1024
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
    std::array<std::uint8_t, gap_bytes> sink;
    std::size_t used = 0;
    std::int64_t end = reads_[first].start;
    std::size_t last = first;
    for (; last < stop && used + 2 <= most_parts; ++last) {
      const SpanRead& read = reads_[last];
      const std::int64_t gap = read.start - end;
      if (read.fd != reads_[first].fd || gap < 0 || gap > gap_bytes) break;
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
