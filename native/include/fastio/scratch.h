/// Memory that a decoder keeps and enlarges as needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace fastio {

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
