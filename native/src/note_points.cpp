#include "fastio/note_points.h"

#include <utility>

#include "fastio/probe.h"
#include "fastio/worker.h"

namespace fastio {
namespace {

class NotePointsTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.note_points"; }

  NotePointsTask(std::unique_ptr<Bytes[]> spans, std::size_t spacing,
                 std::shared_ptr<NotedBatch> out) noexcept
      : spans_(std::move(spans)), spacing_(spacing), out_(std::move(out)) {}

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      NotedPoints& out = out_->pictures[i];
      if (image_kind(spans_[i]) == ImageKind::jpeg) {
        const Status status = worker.jpeg.note_points(spans_[i], spacing_, out.table);
        out.status = status == Status::unsupported ? Status::ok : status;
        if (status != Status::ok) out.table.resize(0);
      }
      out_->done.fetch_add(1, std::memory_order_release);
    }
  }

 private:
  const std::unique_ptr<Bytes[]> spans_;
  const std::size_t spacing_;
  const std::shared_ptr<NotedBatch> out_;
};

}  // namespace

std::unique_ptr<Task> note_points_task(std::unique_ptr<Bytes[]> spans, std::size_t spacing,
                                       std::shared_ptr<NotedBatch> out) noexcept {
  return std::make_unique<NotePointsTask>(std::move(spans), spacing, std::move(out));
}

}  // namespace fastio
