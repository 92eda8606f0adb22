#include "files/read_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <utility>

#include "files/readahead.h"
#include "platform/platform.h"

namespace fastio {
namespace {

/// A file descriptor that closes itself.
class File {
 public:
  explicit File(int fd) noexcept : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  const int fd_;
};

/// Reads up to `size` bytes and tries for one more; the number read, or -1 with errno set.
std::int64_t read_and_one_more(int fd, std::uint8_t* out, std::int64_t size) noexcept {
  std::uint8_t more = 0;
  std::int64_t total = 0;
  while (total <= size) {
    const iovec parts[] = {{out + total, static_cast<std::size_t>(size - total)}, {&more, 1}};
    const ssize_t got = readv(fd, parts, 2);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    total += got;
    if (total == size) break;  // it stopped short of the byte beyond: the file ends here
  }
  return total;
}

std::int64_t mtime_ns(const struct stat& about) noexcept {
  constexpr std::int64_t ns_per_s = 1'000'000'000;
  const timespec time = platform::modified(about);
  return std::int64_t{time.tv_sec} * ns_per_s + time.tv_nsec;
}

/// Whether this is a regular file; false with errno set.
bool is_regular(int fd) noexcept {
  struct stat about;
  if (fstat(fd, &about) != 0) return false;
  if (S_ISREG(about.st_mode)) return true;
  errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
  return false;
}

/// A folder that is opened by name, from which files are named.
class NamedFolder {
 public:
  explicit NamedFolder(const char* name) noexcept
      : folder_(platform::open_folder(name)), error_(folder_.fd() < 0 ? errno : 0) {}

  /// A descriptor of the file of this name for reading; -1 with errno set.
  [[nodiscard]] int open(const char* name) const noexcept {
    if (folder_.fd() < 0) {
      errno = error_;
      return -1;
    }
    return openat(folder_.fd(), name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }

 private:
  const File folder_;
  const int error_;
};

class ReadFilesTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_files"; }

  ReadFilesTask(const char* folder, FileReads reads) noexcept
      : reads_(std::move(reads)), folder_(folder) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      errno = 0;
      const Status status = read_one(i);
      reads_.error[i] = status == Status::io_error ? errno : 0;
      reads_.status[i] = static_cast<std::int32_t>(status);
    }
  }

 private:
  [[nodiscard]] Status read_one(std::size_t i) const noexcept {
    const File file(folder_.open(reads_.names[i]));
    if (file.fd() < 0) return Status::io_error;
    // The size is not asked for but proven, by trying for one byte more: a file that is being
    // written to is `changed`, never half a sample. Only of files does `size` bytes and no more
    // come, but a pipe gives none.
    const auto [start, size] = reads_.places[i];
    const std::int64_t got = read_and_one_more(file.fd(), reads_.out + start, size);
    if (got < 0) return Status::io_error;
    if (got == size && size > 0) return Status::ok;
    if (!is_regular(file.fd())) return Status::io_error;
    return got == size ? Status::ok : Status::changed;
  }

  const FileReads reads_;
  const NamedFolder folder_;
};

/// Reads up to `size` bytes from `start`; the number read, or -1 with errno set.
std::int64_t read_from(int fd, std::uint8_t* out, std::int64_t size, std::int64_t start) noexcept {
  std::int64_t total = 0;
  while (total < size) {
    const ssize_t got =
        pread(fd, out + total, static_cast<std::size_t>(size - total), start + total);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    total += got;
  }
  return total;
}

/// The files of which several parts are read, each open from the first of these to the last.
class SharedFiles {
 public:
  SharedFiles(const NamedFolder& folder, const std::vector<FilePart>& parts) noexcept
      : folder_(folder), slots_(parts.size(), none), left_(parts.size()) {
    if (parts.size() < 2) return;
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto name = [&](std::size_t i) { return parts[i].name; };
    std::ranges::sort(order, std::ranges::less{}, name);
    for (std::size_t at = 0, next = 0; at < order.size() && used_ < most_shared; at = next) {
      const char* const of = name(order[at]);
      while (next < order.size() && name(order[next]) == of) ++next;
      if (of == nullptr || next - at == 1) continue;
      for (std::size_t i = at; i < next; ++i) slots_[order[i]] = static_cast<std::uint8_t>(used_);
      fds_[used_++].store(-1, std::memory_order_relaxed);
    }
  }
  SharedFiles(const SharedFiles&) = delete;
  SharedFiles& operator=(const SharedFiles&) = delete;
  ~SharedFiles() { close_all(); }

  [[nodiscard]] bool has(std::size_t part) const noexcept { return slots_[part] != none; }

  /// A descriptor of the file of a part that `has`; -1 with errno set.
  [[nodiscard]] int of(std::size_t part, const char* name) noexcept {
    std::atomic<int>& fd = fds_[slots_[part]];
    int there = fd.load(std::memory_order_acquire);
    if (there >= 0) return there;
    const int opened = folder_.open(name);
    if (opened < 0 || fd.compare_exchange_strong(there, opened, std::memory_order_acq_rel)) {
      return opened;
    }
    close(opened);  // another thread was faster
    return there;
  }

  /// Says that so many parts need no file any more.
  void done(std::size_t parts) noexcept {
    if (left_.fetch_sub(parts, std::memory_order_acq_rel) == parts) close_all();
  }

 private:
  static constexpr std::uint8_t none = 255;
  static_assert(most_shared < none);

  void close_all() noexcept {
    for (std::size_t i = 0; i < used_; ++i) {
      const int open = fds_[i].exchange(-1, std::memory_order_acq_rel);
      if (open >= 0) close(open);
    }
  }

  const NamedFolder& folder_;
  std::vector<std::uint8_t> slots_;  // of each part, among the descriptors
  std::size_t used_ = 0;
  std::array<std::atomic<int>, most_shared> fds_;
  std::atomic<std::size_t> left_;
};

class ReadPartsTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_files"; }

  ReadPartsTask(const char* folder, std::vector<FilePart> parts) noexcept
      : folder_(folder), parts_(std::move(parts)), shared_(folder_, parts_) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      using Clock = std::chrono::steady_clock;
      errno = 0;
      const FilePart& part = parts_[i];
      const Clock::time_point begun = Clock::now();
      const Status status = read_one(i, part);
      *part.error = status == Status::io_error ? errno : 0;
      *part.status = static_cast<std::int32_t>(status);
      *part.spent_ns = std::chrono::nanoseconds(Clock::now() - begun).count();
    }
    shared_.done(last - first);
  }

 private:
  [[nodiscard]] Status read_one(std::size_t i, const FilePart& part) noexcept {
    if (part.name == nullptr) {
      if (part.size > 0) std::memcpy(part.out, part.from, static_cast<std::size_t>(part.size));
      return Status::ok;
    }
    if (shared_.has(i)) {
      const int fd = shared_.of(i, part.name);
      return fd < 0 ? Status::io_error : read_open(fd, part);
    }
    const File file(folder_.open(part.name));
    return file.fd() < 0 ? Status::io_error : read_open(file.fd(), part);
  }

  [[nodiscard]] static Status read_open(int fd, const FilePart& part) noexcept {
    const std::int64_t got = read_from(fd, part.out, part.size, part.start);
    if (got < 0) return Status::io_error;
    // Looked at once its bytes are here: whoever writes to it meanwhile changes its time.
    struct stat about;
    if (fstat(fd, &about) != 0) return Status::io_error;
    if (!S_ISREG(about.st_mode)) {
      errno = EINVAL;
      return Status::io_error;
    }
    const bool is_same =
        got == part.size && about.st_size == part.file_size && mtime_ns(about) == part.mtime_ns;
    return is_same ? Status::ok : Status::changed;
  }

  const NamedFolder folder_;
  const std::vector<FilePart> parts_;
  SharedFiles shared_;
};

class AdvisePartsTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_ahead"; }

  AdvisePartsTask(const char* folder, std::vector<FilePart> parts) noexcept
      : folder_(folder), parts_(std::move(parts)) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      const FilePart& part = parts_[i];
      if (part.name == nullptr || part.size == 0) continue;
      const File file(folder_.open(part.name));
      if (file.fd() < 0) continue;
      const auto start = static_cast<std::uint64_t>(part.start);
      Stretch all{start, start + static_cast<std::uint64_t>(part.size)};
      try {
        advise_file(file.fd(), {&all, 1});
      } catch (const std::bad_alloc&) {
        // Without memory for a list nothing is read ahead: it is read when it is needed.
      }
    }
  }

 private:
  const NamedFolder folder_;
  const std::vector<FilePart> parts_;
};

}  // namespace

std::unique_ptr<Task> read_parts_task(const char* folder, std::vector<FilePart> parts) noexcept {
  return std::make_unique<ReadPartsTask>(folder, std::move(parts));
}

std::unique_ptr<Task> advise_parts_task(const char* folder, std::vector<FilePart> parts) noexcept {
  return std::make_unique<AdvisePartsTask>(folder, std::move(parts));
}

std::unique_ptr<Task> read_files_task(const char* folder, FileReads reads) noexcept {
  return std::make_unique<ReadFilesTask>(folder, std::move(reads));
}

void stat_files(int folder, std::span<const char* const> names, FileStat* out) noexcept {
  for (const char* name : names) {
    struct stat about;
    if (fstatat(folder, name, &about, 0) == 0) {
      *out++ = {0, static_cast<std::int64_t>(about.st_mode), about.st_size, about.st_blocks,
                mtime_ns(about)};
    } else {
      *out++ = {errno, 0, 0, 0, 0};
    }
  }
}

}  // namespace fastio
