/// Raw values: spans copied into the rows of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/status.h"
#include "core/thread_pool.h"

namespace fastio {

/// Where a batch of raw values goes: row i is `row_bytes` bytes from `out + i * row_bytes`.
struct Rows {
  std::uint8_t* out;
  std::size_t row_bytes;
  const std::uint32_t* checksums;  ///< nullptr: not checked
  std::int32_t* status;
};

/// A task that copies `spans[i]` into row i. A span of another size is `bad_shape` and its
/// row is left alone; a wrong CRC-32 is `bad_checksum`. Owns
/// `spans`, nothing else.
[[nodiscard]] std::unique_ptr<Task> gather_task(std::unique_ptr<Bytes[]> spans,
                                                const Rows& rows) noexcept;

}  // namespace fastio
