// CRC-32 in AVX-512: blocks of 256 bytes, folded by carry-less multiplication. See
// core/crc32_folding.h.
#if defined(__x86_64__)

#include <immintrin.h>

#include "core/crc32_folding.h"

namespace fastio {
namespace {

using namespace crc32_folding;

constexpr std::size_t vector_bytes = 64;
constexpr std::size_t vectors = block_bytes / vector_bytes;

/// For each lane of 128 bits of a block, the multipliers of its halves that bring it to the block's
/// end and 32 powers higher: lane 15 is the last.
struct LaneMultipliers {
  alignas(64) std::array<std::uint64_t, block_bytes / 8> halves{};

  constexpr LaneMultipliers() noexcept {
    for (unsigned lane = 0; lane < 16; ++lane) {
      const unsigned distance = 128 * (15 - lane);
      halves[2 * lane] = multiplier(distance + 64 + 32);
      halves[2 * lane + 1] = multiplier(distance + 32);
    }
  }
};
constexpr LaneMultipliers to_end;

constexpr unsigned block_bits = 8 * block_bytes;
constexpr std::uint64_t low_to_next = multiplier(block_bits + 64);
constexpr std::uint64_t high_to_next = multiplier(block_bits);
constexpr std::uint64_t by_x64 = multiplier(64);
constexpr std::uint64_t quotient = quotient_of_x64();
constexpr std::uint64_t divisor = whole_polynomial;

[[nodiscard]] inline long long as_signed(std::uint64_t bits) noexcept {
  return static_cast<long long>(bits);
}

/// a * b + c, lane by lane: low halves with low halves, high with high.
[[nodiscard]] inline __m512i multiply_add(__m512i a, __m512i b, __m512i c) noexcept {
  constexpr int add_all = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, b, 0x00),
                                   _mm512_clmulepi64_epi128(a, b, 0x11), c, add_all);
}

/// The sum of the four lanes.
[[nodiscard]] inline __m128i sum_of_lanes(__m512i lanes) noexcept {
  const __m256i two =
      _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}

/// The remainder of 96 powers, the higher 32 of them at the upper end of the low half.
[[nodiscard]] inline std::uint32_t remainder(__m128i value) noexcept {
  const __m128i shifted = _mm_clmulepi64_si128(value, _mm_cvtsi64_si128(as_signed(by_x64)), 0x00);
  const __m128i rest = _mm_srli_si128(_mm_xor_si128(shifted, value), 8);  // 64 powers
  // Barrett: the multiple of G that has the same higher 32 powers.
  const __m128i constants = _mm_set_epi64x(as_signed(divisor), as_signed(quotient));
  const __m128i low_word = _mm_cvtsi32_si128(-1);
  const __m128i times = _mm_clmulepi64_si128(_mm_and_si128(rest, low_word), constants, 0x00);
  const __m128i multiple = _mm_clmulepi64_si128(_mm_and_si128(times, low_word), constants, 0x10);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(rest, multiple), 1));
}

/// The CRC-32 of one block or more; with `copies`, each byte is written to `to` as well.
template <bool copies>
[[nodiscard]] inline std::uint32_t fold(Bytes blocks, std::uint8_t* to) noexcept {
  __m512i sums[vectors];
  const auto take = [&](std::size_t at) {
    const __m512i bytes = _mm512_loadu_si512(blocks.data() + at);
    if constexpr (copies) _mm512_storeu_si512(to + at, bytes);
    return bytes;
  };
  for (std::size_t k = 0; k < vectors; ++k) sums[k] = take(k * vector_bytes);
  sums[0] =
      _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));  // as it begins

  const __m512i to_next =
      _mm512_broadcast_i64x2(_mm_set_epi64x(as_signed(high_to_next), as_signed(low_to_next)));
  for (std::size_t at = block_bytes; at < blocks.size(); at += block_bytes) {
    for (std::size_t k = 0; k < vectors; ++k) {
      sums[k] = multiply_add(sums[k], to_next, take(at + k * vector_bytes));
    }
  }
  __m512i sum = _mm512_setzero_si512();
  for (std::size_t k = 0; k < vectors; ++k) {
    sum = multiply_add(sums[k], _mm512_load_si512(&to_end.halves[k * vector_bytes / 8]), sum);
  }
  return ~remainder(sum_of_lanes(sum));
}

}  // namespace

std::uint32_t avx512_crc32(Bytes blocks) noexcept {
  return fold<false>(blocks, nullptr);
}

std::uint32_t avx512_crc32_copy(Bytes blocks, std::uint8_t* to) noexcept {
  return fold<true>(blocks, to);
}

}  // namespace fastio

#endif
