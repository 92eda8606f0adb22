// CRC-32 against its published check value, and every way to compute it against the slow one.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "check.h"
#include "core/checksum.h"

namespace {

using fastio::Bytes;
using fastio::SimdLevel;

/// One bit at a time, as the polynomial says.
std::uint32_t slow_crc32(Bytes data) {
  std::uint32_t value = 0xFFFFFFFFU;
  for (const std::uint8_t byte : data) {
    value ^= byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) * 0xEDB88320U);
  }
  return ~value;
}

std::vector<std::uint8_t> noise(std::size_t size, std::uint32_t state) {
  std::vector<std::uint8_t> bytes(size);
  for (std::uint8_t& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return bytes;
}

/// The data lie in memory of exactly their size, so that a sanitizer sees a byte read too many.
void test_checksum_and_copy(std::size_t size, SimdLevel level) {
  const std::vector<std::uint8_t> bytes = noise(size, static_cast<std::uint32_t>(size) + 1);
  const auto exact = std::make_unique<std::uint8_t[]>(size);
  if (size > 0) std::memcpy(exact.get(), bytes.data(), size);
  const Bytes data(exact.get(), size);
  const std::uint32_t expected = slow_crc32(bytes);
  EXPECT(fastio::crc32_routines(level).crc32(data) == expected);

  constexpr std::uint8_t untouched = 0xA5;
  std::vector<std::uint8_t> copy(size + 2, untouched);
  EXPECT(fastio::crc32_routines(level).copy(data, copy.data() + 1) == expected);
  EXPECT(size == 0 || std::memcmp(copy.data() + 1, bytes.data(), size) == 0);
  EXPECT(copy.front() == untouched);
  EXPECT(copy.back() == untouched);
}

/// Whatever begins anywhere in memory.
void test_alignment(SimdLevel level) {
  const std::vector<std::uint8_t> bytes = noise(1024, 7);
  for (std::size_t start = 0; start < 80; ++start) {
    const Bytes data = Bytes(bytes).subspan(start, 300 + 7 * start);
    EXPECT(fastio::crc32_routines(level).crc32(data) == slow_crc32(data));
  }
}

}  // namespace

int main() {
  const std::uint8_t text[] = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  const Bytes all(text);
  EXPECT(fastio::crc32(all) == 0xCBF43926U);
  EXPECT(fastio::crc32(all.subspan(4), fastio::crc32(all.first(4))) == 0xCBF43926U);
  EXPECT(fastio::crc32({}) == 0);
  EXPECT(fastio::crc32({}, 7) == 7);
  for (const SimdLevel level : {SimdLevel::none, fastio::simd_level()}) {
    for (std::size_t size = 0; size < 1100; ++size) test_checksum_and_copy(size, level);
    for (const std::size_t size : {4096U, 16384U, 16385U, 40001U, 100000U}) {
      test_checksum_and_copy(size, level);
    }
    test_alignment(level);
  }
  return failures;
}
