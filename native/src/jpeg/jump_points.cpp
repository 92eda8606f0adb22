#include "jpeg/jump_points.h"

#include <span>
#include <utility>

#include "pictures/worker.h"

namespace fastio {
namespace {

class NotePointsTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.note_points"; }

  NotePointsTask(std::unique_ptr<Bytes[]> spans, std::size_t spacing,
                 std::shared_ptr<NotedBatch> out) noexcept
      : spans_(std::move(spans)), spacing_(spacing), out_(std::move(out)) {}

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    const std::size_t count = last - first;
    NotedPoints* const noted = &out_->pictures[first];
    worker.jpeg.note_points({&spans_[first], count}, spacing_, noted);
    for (NotedPoints& each : std::span(noted, count)) {
      if (each.status != Status::ok) each.table.resize(0);
      if (each.status == Status::unsupported) each.status = Status::ok;
    }
    out_->done.fetch_add(count, std::memory_order_release);
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
