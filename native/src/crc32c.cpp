#include "fastio/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace fastio {
namespace {

constexpr std::uint32_t polynomial = 0x82F63B78U;
constexpr std::size_t step_bytes = 8;

using Tables = std::array<std::array<std::uint32_t, 256>, step_bytes>;

/// tables[k][b]: what byte b does to the checksum when k bytes follow it.
constexpr Tables make_tables() noexcept {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) * polynomial);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < step_bytes; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

/// Eight bytes a step, each by its own table.
std::uint32_t plain_crc32c(Bytes data) noexcept {
  std::uint32_t value = 0xFFFFFFFFU;
  std::size_t at = 0;
  for (; at + step_bytes <= data.size(); at += step_bytes) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t byte = (data[at + i] ^ (value >> (8 * i))) & 0xFFU;
      next ^= tables[step_bytes - 1 - i][byte] ^ tables[3 - i][data[at + 4 + i]];
    }
    value = next;
  }
  for (; at < data.size(); ++at) value = (value >> 8) ^ tables[0][(value ^ data[at]) & 0xFFU];
  return ~value;
}

#if defined(__x86_64__)
std::uint32_t instructed_crc32c(Bytes data) noexcept {
  return ~sse42_crc32c(data, 0xFFFFFFFFU);
}
#elif defined(__aarch64__)
std::uint32_t instructed_crc32c(Bytes data) noexcept {
  return ~arm_crc32c(data, 0xFFFFFFFFU);
}
#endif

class Crc32cTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.crc32c"; }

  Crc32cTask(std::unique_ptr<Bytes[]> spans, std::uint32_t* out) noexcept
      : spans_(std::move(spans)), out_(out) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) out_[i] = crc32c(spans_[i]);
  }

 private:
  const std::unique_ptr<Bytes[]> spans_;
  std::uint32_t* const out_;
};

}  // namespace

Crc32cRoutine crc32c_routine([[maybe_unused]] SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx2) return instructed_crc32c;
#elif defined(__aarch64__)
  static const bool has_instructions = arm_has_crc32c();
  if (level >= SimdLevel::neon && has_instructions) return instructed_crc32c;
#endif
  return plain_crc32c;
}

std::uint32_t crc32c(Bytes data) noexcept {
  return crc32c_routine(simd_level())(data);
}

std::unique_ptr<Task> crc32c_task(std::unique_ptr<Bytes[]> spans, std::uint32_t* out) noexcept {
  return std::make_unique<Crc32cTask>(std::move(spans), out);
}

}  // namespace fastio
