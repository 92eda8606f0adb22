/// Jump tables of a batch of pictures on their way into a store.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/thread_pool.h"
#include "jpeg/jpeg.h"

namespace fastio {

/// What was noted of a batch: tables, empty for pictures that cannot have one or need none, or
/// damage, or `no_memory`. Read when `done` (acquire) is their number: threads may keep it longer.
struct NotedBatch {
  explicit NotedBatch(std::size_t count) : pictures(count) {}

  std::vector<NotedPoints> pictures;
  std::atomic<std::size_t> done{0};
};

/// A task that notes the points of `spans[i]` in `out->pictures[i]`, see JpegDecoder::note_points.
/// Owns `spans`; shares `out`.
[[nodiscard]] std::unique_ptr<Task> note_points_task(std::unique_ptr<Bytes[]> spans,
                                                     std::size_t spacing,
                                                     std::shared_ptr<NotedBatch> out) noexcept;

}  // namespace fastio
