#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/platform.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace fastio::platform {

std::int64_t thread_id() noexcept {
  return gettid();
}

void name_thread(const char* name) noexcept {
  pthread_setname_np(pthread_self(), name);
}

double cpu_seconds(pthread_t thread) noexcept {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

long major_faults() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

void ask_for_large_pages(void* pages, std::size_t size) noexcept {
  (void)madvise(pages, size, MADV_HUGEPAGE);
}

int open_folder(const char* name) noexcept {
  return ::open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void read_ahead(int fd, std::uint64_t start, std::uint64_t size) noexcept {
  (void)posix_fadvise(fd, static_cast<off_t>(start), static_cast<off_t>(size), POSIX_FADV_WILLNEED);
}

timespec modified(const struct stat& about) noexcept {
  return about.st_mtim;
}

bool has_arm_crc32c() noexcept {
#if defined(__aarch64__)
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
  return false;
#endif
}

}  // namespace fastio::platform
