#include "core/checksum.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/crc32_folding.h"
#include "platform/platform.h"

namespace fastio {
namespace {

std::uint32_t continued(Bytes data, std::uint32_t value) noexcept {
  if (data.empty()) return value;  // libdeflate answers a null pointer with the initial value
  return libdeflate_crc32(value, data.data(), data.size());
}

std::uint32_t plain_crc32(Bytes data) noexcept {
  return continued(data, 0);
}

/// In pieces that are still in the nearest cache when they are copied.
std::uint32_t plain_copy(Bytes data, std::uint8_t* to) noexcept {
  constexpr std::size_t piece_bytes = 8 * 1024;
  std::uint32_t value = 0;
  for (std::size_t at = 0; at < data.size(); at += piece_bytes) {
    const Bytes piece = data.subspan(at, std::min(piece_bytes, data.size() - at));
    value = continued(piece, value);
    std::memcpy(to + at, piece.data(), piece.size());
  }
  return value;
}

constexpr Crc32Routines plain{plain_crc32, plain_copy};

#if defined(__x86_64__)
constexpr std::size_t least_folded = 4;  // bytes: as many as the initial value has

std::uint32_t folded_crc32(Bytes data) noexcept {
  return data.size() < least_folded ? plain_crc32(data) : avx512_crc32(data);
}

std::uint32_t folded_copy(Bytes data, std::uint8_t* to) noexcept {
  return data.size() < least_folded ? plain_copy(data, to) : avx512_crc32_copy(data, to);
}

constexpr Crc32Routines folding{folded_crc32, folded_copy};
#endif

}  // namespace

const Crc32Routines& crc32_routines([[maybe_unused]] SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx512) return folding;
#endif
  return plain;
}

std::uint32_t crc32(Bytes data, std::uint32_t value) noexcept {
  return value == 0 ? crc32_routines(simd_level()).crc32(data) : continued(data, value);
}

std::uint32_t crc32_copy(Bytes data, std::uint8_t* to) noexcept {
  return crc32_routines(simd_level()).copy(data, to);
}

namespace {

class ChecksumTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.checksum"; }

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
  static const bool has_instructions = platform::has_arm_crc32c();
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
