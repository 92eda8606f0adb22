#include "fastio/read_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace fastio {
namespace {

/// A file descriptor that closes itself.
class File {
 public:
  explicit File(const char* path) noexcept : fd_(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  const int fd_;
};

/// Reads up to `size` bytes; the number read, or -1 with errno set.
std::int64_t read_up_to(int fd, std::uint8_t* out, std::int64_t size) noexcept {
  std::int64_t total = 0;
  while (total < size) {
    const ssize_t got = read(fd, out + total, static_cast<std::size_t>(size - total));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    total += got;
  }
  return total;
}

class ReadFilesTask final : public Task {
 public:
  explicit ReadFilesTask(FileReads reads) noexcept : reads_(std::move(reads)) {}

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
    const File file(reads_.paths[i]);
    if (file.fd() < 0) return Status::io_error;
    // The size is asked for before and proven by one byte more after: a file that is being
    // written to is `changed`, never half a sample.
    struct stat about;
    if (fstat(file.fd(), &about) != 0) return Status::io_error;
    if (!S_ISREG(about.st_mode)) {
      errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
      return Status::io_error;
    }
    const std::int64_t size = reads_.sizes[i];
    if (about.st_size != size) return Status::changed;
    const std::int64_t got = read_up_to(file.fd(), reads_.out + reads_.starts[i], size);
    if (got < 0) return Status::io_error;
    if (got < size) return Status::changed;
    std::uint8_t more = 0;
    const std::int64_t beyond = read_up_to(file.fd(), &more, 1);
    if (beyond < 0) return Status::io_error;
    return beyond == 0 ? Status::ok : Status::changed;
  }

  const FileReads reads_;
};

}  // namespace

std::unique_ptr<Task> read_files_task(FileReads reads) noexcept {
  return std::make_unique<ReadFilesTask>(std::move(reads));
}

}  // namespace fastio
