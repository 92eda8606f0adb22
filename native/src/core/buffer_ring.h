/// Recycled batch buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fastio {

/// Hands out aligned memory that comes back when its lease dies, from whatever thread, also
/// after the ring itself. All members are thread-safe.
class BufferRing {
  struct State;

 public:
  static constexpr std::size_t alignment = 64;

  /// The right to use one buffer; gives it back to the ring when destroyed.
  class Lease {
   public:
    Lease(std::shared_ptr<State> state, std::uint8_t* data, std::size_t capacity) noexcept;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();

    [[nodiscard]] std::uint8_t* data() const noexcept { return data_; }

   private:
    const std::shared_ptr<State> state_;
    std::uint8_t* const data_;
    const std::size_t capacity_;
  };

  /// At most `keep` free buffers are held; more are given back to the system.
  explicit BufferRing(std::size_t keep) noexcept;

  /// At least `size` bytes, uninitialised; nullptr when there is no memory. A free buffer is
  /// used again when it is large enough and not more than twice as large.
  [[nodiscard]] std::unique_ptr<Lease> acquire(std::size_t size) noexcept;

  /// Bytes handed out and bytes free.
  [[nodiscard]] std::size_t allocated_bytes() const noexcept;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace fastio
