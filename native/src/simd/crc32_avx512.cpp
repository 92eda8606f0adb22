// CRC-32 in AVX-512: blocks of 256 bytes, folded by carry-less multiplication. See crc32_folding.h.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

#include "../crc32_folding.h"

namespace fastio {
namespace {

using namespace crc32_folding;

constexpr std::size_t vector_bytes = 64;
constexpr std::size_t vectors = 4;
constexpr std::size_t block_bytes = vectors * vector_bytes;

constexpr std::array<std::uint32_t, 256> begun = beginnings();

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

/// Loaded from `at(n)`, what brings 64 - n bytes to the end of a vector and makes those before
/// zeros.
struct Slide {
  alignas(64) std::array<std::uint8_t, 2 * vector_bytes> from{};
  alignas(64) std::array<std::uint8_t, 2 * vector_bytes> kept{};

  constexpr Slide() noexcept {
    for (std::size_t i = 0; i < vector_bytes; ++i) {
      from[vector_bytes + i] = static_cast<std::uint8_t>(i);
      kept[vector_bytes + i] = 0xFF;
    }
  }
};
constexpr Slide slide;

[[nodiscard]] inline __m512i to_the_end(__m512i bytes, std::size_t skipped) noexcept {
  const std::size_t at = vector_bytes - skipped;
  return _mm512_and_si512(
      _mm512_permutexvar_epi8(_mm512_loadu_si512(slide.from.data() + at), bytes),
      _mm512_loadu_si512(slide.kept.data() + at));
}

/// The first block of a message, the one that is not whole: what it lacks are zeros in front of the
/// message, which change nothing. Its last vectors hold the message's first `bytes` bytes. Nothing
/// is loaded from beside them: that would be a line of memory that nobody has asked for ahead.
template <bool copies>
inline void first_block(Bytes data, std::size_t bytes, std::uint8_t* to, __m512i* sums) noexcept {
  if (data.size() < vector_bytes) {
    const __mmask64 mask = _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(bytes));
    const __m512i all = _mm512_maskz_loadu_epi8(mask, data.data());
    if constexpr (copies) _mm512_mask_storeu_epi8(to, mask, all);
    for (std::size_t k = 0; k + 1 < vectors; ++k) sums[k] = _mm512_setzero_si512();
    sums[vectors - 1] = to_the_end(all, vector_bytes - bytes);
    return;
  }
  const std::size_t zeros = block_bytes - bytes;
  for (std::size_t k = 0; k < vectors; ++k) {
    const std::size_t start = k * vector_bytes;
    const std::size_t skipped = std::min(zeros > start ? zeros - start : 0, vector_bytes);
    const std::size_t offset = start > zeros ? start - zeros : 0;
    const __m512i some = _mm512_loadu_si512(data.data() + offset);
    if constexpr (copies) _mm512_storeu_si512(to + offset, some);
    sums[k] = to_the_end(some, skipped);
  }
}

/// The CRC-32 of at least one byte; with `copies`, each is written to `to` as well.
template <bool copies>
[[nodiscard]] inline std::uint32_t fold(Bytes data, std::uint8_t* to) noexcept {
  const std::uint8_t* from = data.data();
  const std::size_t first_bytes = (data.size() - 1) % block_bytes + 1;
  __m512i sums[vectors];
  first_block<copies>(data, first_bytes, to, sums);
  const __m512i beginning =
      _mm512_maskz_set1_epi32(0x8000, static_cast<int>(begun[first_bytes - 1]));
  sums[vectors - 1] = _mm512_xor_si512(sums[vectors - 1], beginning);

  const __m512i to_next =
      _mm512_broadcast_i64x2(_mm_set_epi64x(as_signed(high_to_next), as_signed(low_to_next)));
  for (std::size_t at = first_bytes; at < data.size(); at += block_bytes) {
    for (std::size_t k = 0; k < vectors; ++k) {
      const __m512i next = _mm512_loadu_si512(from + at + k * vector_bytes);
      if constexpr (copies) _mm512_storeu_si512(to + at + k * vector_bytes, next);
      sums[k] = multiply_add(sums[k], to_next, next);
    }
  }
  __m512i sum = _mm512_setzero_si512();
  for (std::size_t k = 0; k < vectors; ++k) {
    sum = multiply_add(sums[k], _mm512_load_si512(&to_end.halves[k * vector_bytes / 8]), sum);
  }
  return ~remainder(sum_of_lanes(sum));
}

}  // namespace

std::uint32_t avx512_crc32(Bytes data) noexcept {
  return data.empty() ? 0 : fold<false>(data, nullptr);
}

std::uint32_t avx512_crc32_copy(Bytes data, std::uint8_t* to) noexcept {
  return data.empty() ? 0 : fold<true>(data, to);
}

}  // namespace fastio

#endif
