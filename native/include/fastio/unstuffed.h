/// The bytes of a scan without those that are stuffed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/bytes.h"
#include "fastio/scratch.h"

namespace fastio {

/// The entropy-coded bytes of one scan after another, the zero behind each 0xFF left out.
/// Not thread-safe: one per thread.
class UnstuffedBytes {
 public:
  /// Zeros that follow the bytes in memory.
  static constexpr std::size_t slack = 25 << 10;

  /// Copies `input` up to the first marker, which 0xFF with anything but a zero behind it is, or
  /// the end. False when there is no memory.
  [[nodiscard]] bool read(Bytes input) noexcept;

  [[nodiscard]] const std::uint8_t* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// How many bytes of the input they were.
  [[nodiscard]] std::size_t input_size() const noexcept { return size_ + removed_count_; }

  /// Where byte `number` (up to `size`) was in the input: behind the zero, if one was left out
  /// before it. Must be asked for in ascending order.
  [[nodiscard]] std::size_t input_offset(std::size_t number) noexcept {
    while (passed_ < removed_count_ && removed_[passed_] <= number) ++passed_;
    return number + passed_;
  }

 private:
  Scratch memory_;
  Scratch removed_memory_;
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t* removed_ = nullptr;  ///< before which bytes zeros were left out
  std::size_t removed_count_ = 0;
  std::size_t passed_ = 0;  ///< how many of them lie before the byte last asked for
};

}  // namespace fastio
