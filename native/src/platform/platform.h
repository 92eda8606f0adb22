/// What each operating system asks for in its own words: the only calls of the core that POSIX does
/// not have. `linux.cpp` and `darwin.cpp` (macOS) answer them; CMake compiles one of the two.
///
/// What only makes things faster (large pages, reading ahead, names of threads) may do nothing.
#pragma once

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

namespace fastio::platform {

// Threads.

/// What debuggers, profilers and Python (`threading.get_native_id`) call this thread.
[[nodiscard]] std::int64_t thread_id() noexcept;

/// Names this thread for debuggers; at most 15 bytes.
void name_thread(const char* name) noexcept;

/// CPU time that a thread of this process has used so far, in seconds; 0 where nobody tells.
[[nodiscard]] double cpu_seconds(pthread_t thread) noexcept;

/// How many page faults had to wait for a disk: those of this thread, or, where nobody counts
/// these alone, of the process.
[[nodiscard]] long major_faults() noexcept;

// Memory.

/// Asks for large pages where the memory of these whole pages is not there yet.
void ask_for_large_pages(void* pages, std::size_t size) noexcept;

// Files.

/// A descriptor of a folder from which files are opened (openat); -1 with errno set.
[[nodiscard]] int open_folder(const char* name) noexcept;

/// Has the kernel read `size` bytes from `start` into its cache, without waiting for them.
void read_ahead(int fd, std::uint64_t start, std::uint64_t size) noexcept;

/// When the file was last written to.
[[nodiscard]] timespec modified(const struct stat& about) noexcept;

// Processors.

/// Whether this 64-bit ARM processor has instructions for CRC-32C; false on any other.
[[nodiscard]] bool has_arm_crc32c() noexcept;

}  // namespace fastio::platform
