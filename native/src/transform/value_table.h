/// Pictures of bytes into values of another type by a table per channel: normalised floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/thread_pool.h"

namespace fastio {

/// Pictures, one after the other, and where the values of their bytes go, likewise.
struct ValueTableWork {
  const std::uint8_t* pictures;
  std::size_t picture_bytes;  ///< a multiple of `channels`
  std::size_t channels;
  bool planar;         ///< channel behind channel; else pixel behind pixel
  const void* tables;  ///< 256 values for each channel
  void* out;
  std::size_t value_bytes;  ///< 2 or 4
};

/// A task whose item i is picture i. Owns nothing.
[[nodiscard]] std::unique_ptr<Task> value_table_task(const ValueTableWork& work) noexcept;

}  // namespace fastio
