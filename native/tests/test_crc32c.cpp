// CRC-32C against its published check values, and every way to compute it against the slow one.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "check.h"
#include "core/checksum.h"

namespace {

using fastio::Bytes;
using fastio::SimdLevel;

/// One bit at a time, as the polynomial says.
std::uint32_t slow_crc32c(Bytes data) {
  std::uint32_t value = 0xFFFFFFFFU;
  for (const std::uint8_t byte : data) {
    value ^= byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) * 0x82F63B78U);
  }
  return ~value;
}

/// The data lie in memory of exactly their size, so that a sanitizer sees a byte read too many.
void test_size(std::size_t size, SimdLevel level) {
  const auto exact = std::make_unique<std::uint8_t[]>(size);
  for (std::size_t i = 0; i < size; ++i) exact[i] = static_cast<std::uint8_t>(i * 31 + size);
  const Bytes data(exact.get(), size);
  EXPECT(fastio::crc32c_routine(level)(data) == slow_crc32c(data));
}

/// RFC 3720, appendix B.4, and the usual nine digits.
void test_published_values(SimdLevel level) {
  const auto of = [level](const std::vector<std::uint8_t>& bytes) {
    return fastio::crc32c_routine(level)(Bytes(bytes));
  };
  const std::string_view digits = "123456789";
  EXPECT(of({digits.begin(), digits.end()}) == 0xE3069283U);
  EXPECT(of(std::vector<std::uint8_t>(32, 0)) == 0x8A9136AAU);
  EXPECT(of(std::vector<std::uint8_t>(32, 0xFF)) == 0x62A8AB43U);
}

}  // namespace

int main() {
  for (const SimdLevel level : {SimdLevel::none, fastio::simd_level()}) {
    test_published_values(level);
    for (std::size_t size = 0; size < 70; ++size) test_size(size, level);
    test_size(100'003, level);
  }
  return failures;
}
