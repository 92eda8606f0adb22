#include "core/gather.h"

#include <cstring>
#include <utility>

#include "core/checksum.h"

namespace fastio {
namespace {

class GatherTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.gather"; }

  GatherTask(std::unique_ptr<Bytes[]> spans, const Rows& rows) noexcept
      : spans_(std::move(spans)), rows_(rows) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      rows_.status[i] = static_cast<std::int32_t>(copy(i));
    }
  }

 private:
  [[nodiscard]] Status copy(std::size_t i) const noexcept {
    const Bytes span = spans_[i];
    if (span.size() != rows_.row_bytes) return Status::bad_shape;
    std::uint8_t* row = rows_.out + i * rows_.row_bytes;
    if (rows_.checksums != nullptr) {
      return crc32_copy(span, row) == rows_.checksums[i] ? Status::ok : Status::bad_checksum;
    }
    if (!span.empty()) std::memcpy(row, span.data(), span.size());
    return Status::ok;
  }

  const std::unique_ptr<Bytes[]> spans_;
  const Rows rows_;
};

}  // namespace

std::unique_ptr<Task> gather_task(std::unique_ptr<Bytes[]> spans, const Rows& rows) noexcept {
  return std::make_unique<GatherTask>(std::move(spans), rows);
}

}  // namespace fastio
