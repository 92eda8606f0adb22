/// Lets a module that was linked against a new glibc load where an old one is.
///
/// Functions that moved into libc.so.6 (2.30 to 2.34) got a new version there, though nothing else
/// changed, and exp and log one (2.29) that knows no matherr any more. The linker (`--wrap`, see
/// old_glibc.cmake) hands calls of them, also those of a static libstdc++, to the functions below,
/// which take the version of before or ask the kernel.
#include <pthread.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#if defined(__x86_64__)
#define FASTIO_BASE "GLIBC_2.2.5"
#define FASTIO_SETNAME "GLIBC_2.12"
#elif defined(__aarch64__)
#define FASTIO_BASE "GLIBC_2.17"
#define FASTIO_SETNAME "GLIBC_2.17"
#else
#error "FASTIO_OLD_GLIBC: which versions of glibc's symbols has this processor?"
#endif

// Declares base_<name>: the function `name` as that version of glibc has it.
#define FASTIO_BASE_SYMBOL(name, version) \
  extern "C" decltype(name) base_##name;  \
  __asm__(".symver base_" #name ", " #name "@" version)

FASTIO_BASE_SYMBOL(pthread_create, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_detach, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_getcpuclockid, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_getspecific, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_join, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_key_create, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_key_delete, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_once, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_setname_np, FASTIO_SETNAME);
FASTIO_BASE_SYMBOL(pthread_setspecific, FASTIO_BASE);
FASTIO_BASE_SYMBOL(pthread_sigmask, FASTIO_BASE);

extern "C" double exp(double);
extern "C" double log(double);
FASTIO_BASE_SYMBOL(exp, FASTIO_BASE);
FASTIO_BASE_SYMBOL(log, FASTIO_BASE);

extern "C" {

/// Of glibc 2.32. False is always right, and true only where no thread has ever been started.
char __libc_single_threaded = 0;

double __wrap_exp(double x) {
  return base_exp(x);
}

double __wrap_log(double x) {
  return base_log(x);
}

int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                          void* (*start)(void*), void* argument) {
  return base_pthread_create(thread, attributes, start, argument);
}

int __wrap_pthread_detach(pthread_t thread) {
  return base_pthread_detach(thread);
}

int __wrap_pthread_getcpuclockid(pthread_t thread, clockid_t* clock) {
  return base_pthread_getcpuclockid(thread, clock);
}

void* __wrap_pthread_getspecific(pthread_key_t key) {
  return base_pthread_getspecific(key);
}

int __wrap_pthread_join(pthread_t thread, void** value) {
  return base_pthread_join(thread, value);
}

int __wrap_pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return base_pthread_key_create(key, destroy);
}

int __wrap_pthread_key_delete(pthread_key_t key) {
  return base_pthread_key_delete(key);
}

int __wrap_pthread_once(pthread_once_t* once, void (*run)()) {
  return base_pthread_once(once, run);
}

int __wrap_pthread_setname_np(pthread_t thread, const char* name) {
  return base_pthread_setname_np(thread, name);
}

int __wrap_pthread_setspecific(pthread_key_t key, const void* value) {
  return base_pthread_setspecific(key, value);
}

int __wrap_pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  return base_pthread_sigmask(how, set, old);
}

/// Of glibc 2.30. Waits by the clock of the day instead: a clock that is set meanwhile wakes the
/// thread early or late, and callers look at their own clock and condition again.
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
  constexpr long second = 1'000'000'000;
  timespec now{};
  timespec day{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  day.tv_sec += until->tv_sec - now.tv_sec;
  day.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (day.tv_nsec < 0) {
    day.tv_nsec += second;
    --day.tv_sec;
  } else if (day.tv_nsec >= second) {
    day.tv_nsec -= second;
    ++day.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &day);
}

pid_t __wrap_gettid() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// Of glibc 2.33. On 64-bit processors the kernel's struct stat is glibc's.
int __wrap_fstat(int file, struct stat* about) {
  return static_cast<int>(syscall(SYS_fstat, file, about));
}

int __wrap_fstatat(int folder, const char* name, struct stat* about, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, name, about, flags));
}

}  // extern "C"
