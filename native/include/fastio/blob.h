/// Bytes that grow while they are written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fastio/bytes.h"

namespace fastio {

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

}  // namespace fastio
