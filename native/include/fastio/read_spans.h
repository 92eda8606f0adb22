/// Spans of files into memory, by pread instead of a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fastio/bytes.h"
#include "fastio/job.h"

namespace fastio {

/// One span: where it lies in its file, and where it goes to.
struct SpanRead {
  int fd;  ///< stays open until the task is done
  std::int64_t start;
  std::size_t size;
  std::uint8_t* out;
  std::int32_t* error;  ///< 0: read; -1: the file ends before; else errno
};

/// Steps of the task of `read_spans_task`: what several threads share.
inline constexpr std::size_t read_spans_steps = 8;

/// A task of `read_spans_steps` steps that reads all spans, in the order of the file, near ones
/// by one call. First the kernel is told of all that is coming (see `stretches`).
[[nodiscard]] std::unique_ptr<Task> read_spans_task(std::vector<SpanRead> reads) noexcept;

}  // namespace fastio
