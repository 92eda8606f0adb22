#include "fastio/crc32.h"

#include <libdeflate.h>

#include <utility>

namespace fastio {

std::uint32_t crc32(Bytes data, std::uint32_t value) noexcept {
  if (data.empty()) return value;  // libdeflate answers a null pointer with the initial value
  return libdeflate_crc32(value, data.data(), data.size());
}

namespace {

class ChecksumTask final : public Task {
 public:
  ChecksumTask(std::unique_ptr<Bytes[]> spans, std::uint32_t* out) noexcept
      : spans_(std::move(spans)), out_(out) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) out_[i] = crc32(spans_[i]);
  }

 private:
  const std::unique_ptr<Bytes[]> spans_;
  std::uint32_t* const out_;
};

}  // namespace

std::unique_ptr<Task> checksum_task(std::unique_ptr<Bytes[]> spans, std::uint32_t* out) noexcept {
  return std::make_unique<ChecksumTask>(std::move(spans), out);
}

}  // namespace fastio
