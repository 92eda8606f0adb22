// macOS 11 and newer. Compiled by `make native-check-darwin`, which has no machine to run it on.
#include <fcntl.h>
#include <mach/mach.h>
#include <sys/resource.h>
#include <sys/sysctl.h>

#include <algorithm>
#include <limits>

#include "platform/platform.h"

namespace fastio::platform {

std::int64_t thread_id() noexcept {
  std::uint64_t id = 0;
  pthread_threadid_np(nullptr, &id);
  return static_cast<std::int64_t>(id);
}

void name_thread(const char* name) noexcept {
  pthread_setname_np(name);
}

double cpu_seconds(pthread_t thread) noexcept {
  thread_basic_info about{};
  mach_msg_type_number_t count = THREAD_BASIC_INFO_COUNT;
  auto* const out = reinterpret_cast<thread_info_t>(&about);
  if (thread_info(pthread_mach_thread_np(thread), THREAD_BASIC_INFO, out, &count) != KERN_SUCCESS) {
    return 0;
  }
  const auto seconds = [](time_value_t time) { return time.seconds + time.microseconds * 1e-6; };
  return seconds(about.user_time) + seconds(about.system_time);
}

long major_faults() noexcept {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);  // those of single threads are not told
  return usage.ru_majflt;
}

void ask_for_large_pages(void*, std::size_t) noexcept {
}  // nobody can be asked for memory of malloc

int open_folder(const char* name) noexcept {
  return ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void read_ahead(int fd, std::uint64_t start, std::uint64_t size) noexcept {
  constexpr std::uint64_t most = std::numeric_limits<int>::max();
  radvisory advice{static_cast<off_t>(start), static_cast<int>(std::min(size, most))};
  (void)fcntl(fd, F_RDADVISE, &advice);
}

timespec modified(const struct stat& about) noexcept {
  return about.st_mtimespec;
}

bool has_arm_crc32c() noexcept {
  int has = 0;
  std::size_t size = sizeof(has);
  return sysctlbyname("hw.optional.armv8_crc32", &has, &size, nullptr, 0) == 0 && has != 0;
}

}  // namespace fastio::platform
