/// Runs of bytes that belong to others, the one place where offsets from disk become pointers;
/// bytes that grow while they are written (Blob); memory that a decoder keeps (Scratch).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace fastio {

/// Read-only bytes owned by somebody else.
using Bytes = std::span<const std::uint8_t>;

/// Spans as they come from a store: `sizes[i]` bytes from `starts[i]` of `buffers[shard[i]]`.
/// The three arrays have equal lengths. Nothing in them is trusted.
struct SpanTable {
  std::span<const Bytes> buffers;
  std::span<const std::int32_t> shard;
  std::span<const std::int64_t> starts;
  std::span<const std::int64_t> sizes;

  [[nodiscard]] std::size_t size() const noexcept { return starts.size(); }
};

/// Whether [start, start + size) lies inside `limit` bytes; safe against overflow.
[[nodiscard]] constexpr bool fits(std::int64_t start, std::int64_t size,
                                  std::size_t limit) noexcept {
  return start >= 0 && size >= 0 && static_cast<std::uint64_t>(start) <= limit &&
         static_cast<std::uint64_t>(size) <= limit - static_cast<std::uint64_t>(start);
}

/// The position of the first span that leaves its buffer (or names none), and table.size() when
/// all are good. Looks at the sizes of buffers only. Thread-safe.
[[nodiscard]] std::size_t first_outside(const SpanTable& table) noexcept;

/// Writes every span as a pointer and a size to `out` (as long as the table).
///
/// Returns the position of the first span that leaves its buffer (or names none), and
/// table.size() when all are good. Call it before any thread starts; thread-safe.
[[nodiscard]] std::size_t resolve(const SpanTable& table, std::span<Bytes> out) noexcept;

// Bytes that grow while they are written.

/// Owned bytes; grows by doubling. Not thread-safe.
class Blob {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint8_t* data() noexcept { return data_.get(); }
  [[nodiscard]] Bytes bytes() const noexcept { return {data_.get(), size_}; }

  /// Room for `capacity` bytes, what is there is kept; false when there is no memory.
  [[nodiscard]] bool reserve(std::size_t capacity) noexcept {
    if (capacity <= capacity_) return true;
    auto* larger = static_cast<std::uint8_t*>(std::realloc(data_.get(), capacity));
    if (larger == nullptr) return false;
    (void)data_.release();  // realloc has freed or kept it
    data_.reset(larger);
    capacity_ = capacity;
    return true;
  }

  /// Adds bytes; false when there is no memory.
  [[nodiscard]] bool append(const void* bytes, std::size_t count) noexcept {
    if (count > capacity_ - size_ && !reserve(std::max(2 * capacity_, size_ + count))) return false;
    if (count > 0) std::memcpy(data_.get() + size_, bytes, count);
    size_ += count;
    return true;
  }

  /// How many bytes there are: those up to `size` (at most the capacity) have been written.
  void resize(std::size_t size) noexcept { size_ = size; }

 private:
  struct Free {
    void operator()(std::uint8_t* data) const noexcept { std::free(data); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Memory that a decoder keeps and enlarges as needed.

/// Uninitialised bytes whose capacity only grows. Not thread-safe: one per thread.
class Scratch {
 public:
  /// At least `size` bytes, or nullptr when there is no memory. What an earlier call
  /// returned is no longer valid.
  [[nodiscard]] std::uint8_t* reserve(std::size_t size) noexcept {
    if (size > capacity_) {
      data_.reset();
      data_.reset(static_cast<std::uint8_t*>(std::malloc(size)));
      capacity_ = data_ ? size : 0;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(std::uint8_t* data) const noexcept { std::free(data); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace fastio
