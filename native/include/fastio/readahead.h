/// Asking the kernel to bring mapped bytes into memory.
#pragma once

#include <cstddef>
#include <memory>

#include "fastio/bytes.h"
#include "fastio/job.h"

namespace fastio {

/// A task of one step that advises the kernel (MADV_WILLNEED) of all spans, neighbours
/// merged into one request. Advice only: what cannot be read ahead is left to be read later.
[[nodiscard]] std::unique_ptr<Task> will_need_task(std::unique_ptr<Bytes[]> spans,
                                                   std::size_t count) noexcept;

}  // namespace fastio
