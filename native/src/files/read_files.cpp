#include "files/read_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace fastio {
namespace {

/// A file descriptor that closes itself.
class File {
 public:
  File(int folder, const char* name, int flags) noexcept
      : fd_(openat(folder, name, flags | O_CLOEXEC)) {}
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

/// Whether this is a regular file; false with errno set.
bool is_regular(int fd) noexcept {
  struct stat about;
  if (fstat(fd, &about) != 0) return false;
  if (S_ISREG(about.st_mode)) return true;
  errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
  return false;
}

class ReadFilesTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.read_files"; }

  ReadFilesTask(const char* folder, FileReads reads) noexcept
      : reads_(std::move(reads)),
        folder_(AT_FDCWD, folder, O_PATH | O_DIRECTORY),
        folder_error_(folder_.fd() < 0 ? errno : 0) {}

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
    if (folder_error_ != 0) {
      errno = folder_error_;
      return Status::io_error;
    }
    const File file(folder_.fd(), reads_.names[i], O_RDONLY | O_NONBLOCK);
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
  const File folder_;
  const int folder_error_;
};

}  // namespace

std::unique_ptr<Task> read_files_task(const char* folder, FileReads reads) noexcept {
  return std::make_unique<ReadFilesTask>(folder, std::move(reads));
}

void stat_files(int folder, std::span<const char* const> names, FileStat* out) noexcept {
  for (const char* name : names) {
    struct stat about;
    if (fstatat(folder, name, &about, 0) == 0) {
      *out++ = {0, static_cast<std::int64_t>(about.st_mode), about.st_size, about.st_blocks};
    } else {
      *out++ = {errno, 0, 0, 0};
    }
  }
}

}  // namespace fastio
