/// The arithmetic behind CRC-32 by carry-less multiplication, worked out by the compiler (inside
/// the core only).
///
/// A message is a polynomial over GF(2): its first bit, the lowest of the first byte, has the
/// highest power. Its CRC-32 is the remainder of (message * x^32) by G. Registers hold polynomials
/// the same way round: bit b of n bits is the power n - 1 - b. The product of two such 64-bit
/// registers, as `clmul` makes it, has 128 bits and is their product times x; hence exponents one
/// too small below.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"

namespace fastio {

#if defined(__x86_64__)
/// The CRC-32 of four bytes or more; the second copies them as well.
std::uint32_t avx512_crc32(Bytes data) noexcept;
std::uint32_t avx512_crc32_copy(Bytes data, std::uint8_t* to) noexcept;
#endif

namespace crc32_folding {

inline constexpr std::uint32_t polynomial = 0xEDB88320U;  // G without x^32
inline constexpr std::uint64_t whole_polynomial = (std::uint64_t{polynomial} << 1) | 1;

constexpr std::uint32_t times_x(std::uint32_t value) noexcept {
  return (value >> 1) ^ ((value & 1U) != 0 ? polynomial : 0U);
}

/// x^n modulo G.
constexpr std::uint32_t power(unsigned n) noexcept {
  std::uint32_t value = 0x80000000U;
  for (unsigned i = 0; i < n; ++i) value = times_x(value);
  return value;
}

/// What a 64-bit register is multiplied with to become, modulo G, its product with x^n.
constexpr std::uint64_t multiplier(unsigned n) noexcept {
  return std::uint64_t{power(n - 1)} << 32;
}

/// floor(x^64 / G), 33 bits.
constexpr std::uint64_t quotient_of_x64() noexcept {
  std::uint64_t quotient = 1;       // of x^32
  std::uint32_t rest = polynomial;  // x^32 modulo G
  for (unsigned i = 1; i <= 32; ++i) {
    quotient |= std::uint64_t{rest & 1U} << i;
    rest = times_x(rest);
  }
  return quotient;
}

}  // namespace crc32_folding
}  // namespace fastio
