// CRC-32 in AVX-512, by carry-less multiplication: vectors of 64 bytes are folded into each other,
// or four at a time. See core/crc32_folding.h.
#if defined(__x86_64__)

#include <immintrin.h>

#include "core/crc32_folding.h"

namespace fastio {
namespace {

using namespace crc32_folding;

constexpr std::size_t vector_bytes = 64;
constexpr std::size_t vectors = 4;  // of a block
constexpr std::size_t block_bytes = vectors * vector_bytes;

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
constexpr LaneMultipliers lanes;

constexpr __mmask64 initial_bytes = 0xf;
constexpr unsigned block_bits = 8 * block_bytes, vector_bits = 8 * vector_bytes;
constexpr std::uint64_t low_to_block = multiplier(block_bits + 64);
constexpr std::uint64_t high_to_block = multiplier(block_bits);
constexpr std::uint64_t low_to_vector = multiplier(vector_bits + 64);
constexpr std::uint64_t high_to_vector = multiplier(vector_bits);
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

/// Multipliers for the halves of each lane.
[[nodiscard]] inline __m512i both(std::uint64_t low, std::uint64_t high) noexcept {
  return _mm512_broadcast_i64x2(_mm_set_epi64x(as_signed(high), as_signed(low)));
}

/// Vector k of a block, brought to its end.
[[nodiscard]] inline __m512i to_end(__m512i vector, std::size_t k) noexcept {
  return multiply_add(vector, _mm512_load_si512(&lanes.halves[k * vector_bytes / 8]),
                      _mm512_setzero_si512());
}

/// The sum of the four lanes.
[[nodiscard]] inline __m128i sum_of_lanes(__m512i sum) noexcept {
  const __m256i two =
      _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
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

/// Ones in the bytes of a vector that `bytes` has a bit for.
[[nodiscard]] inline __m512i ones_in(__mmask64 bytes) noexcept {
  return _mm512_maskz_set1_epi8(bytes, -1);
}

/// A vector whose byte j is byte j - by of another, and zero where that has none.
///
/// Only whole words can be moved between lanes, so an odd distance takes the two halves of a word
/// from two vectors. Reading from before the message instead would wait for a line of memory that
/// nobody has asked for.
[[nodiscard]] inline __m512i moved_up(__m512i bytes, std::size_t by) noexcept {
  alignas(64) static constexpr std::array<std::uint16_t, 32> numbers = [] {
    std::array<std::uint16_t, 32> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    return all;
  }();
  const auto words_up = [&](std::size_t words) {
    const __m512i from = _mm512_sub_epi16(_mm512_load_si512(numbers.data()),
                                          _mm512_set1_epi16(static_cast<short>(words)));
    const auto there = static_cast<__mmask32>(~std::uint64_t{0} << words);
    return _mm512_maskz_permutexvar_epi16(there, from, bytes);
  };
  const __m512i lower = words_up(by / 2);
  if (by % 2 == 0) return lower;
  return _mm512_or_si512(_mm512_slli_epi16(lower, 8), _mm512_srli_epi16(words_up(by / 2 + 1), 8));
}

/// The CRC-32 of four bytes or more; with `copies`, each byte is written to `to` as well.
///
/// Zeros before a message change nothing, so the first vector has as many as make the others whole:
/// nothing is left behind them. The message begins with 32 ones added to it, which may reach into
/// the second vector.
template <bool copies>
[[nodiscard]] inline std::uint32_t fold(Bytes data, std::uint8_t* to) noexcept {
  const std::size_t first = (data.size() - 1) % vector_bytes + 1;
  const std::size_t before = vector_bytes - first;
  const __mmask64 is_there = data.size() < vector_bytes ? ~__mmask64{0} >> before : ~__mmask64{0};
  const __m512i begins = _mm512_maskz_loadu_epi8(is_there, data.data());
  if constexpr (copies) _mm512_mask_storeu_epi8(to, is_there, begins);
  __m512i sum = _mm512_xor_si512(moved_up(begins, before), ones_in(initial_bytes << before));
  __mmask64 left = before > vector_bytes - 4 ? initial_bytes >> first : 0;  // of the initial ones
  std::size_t at = first;
  const auto take = [&] {
    const __m512i bytes = _mm512_loadu_si512(data.data() + at);
    if constexpr (copies) _mm512_storeu_si512(to + at, bytes);
    at += vector_bytes;
    return bytes;
  };
  const auto add_next = [&] {
    const __m512i bytes = _mm512_xor_si512(take(), ones_in(left));
    left = 0;
    sum = multiply_add(sum, both(low_to_vector, high_to_vector), bytes);
  };
  for (std::size_t k = (data.size() - first) / vector_bytes % vectors; k > 0; --k) add_next();
  if (at == data.size()) return ~remainder(sum_of_lanes(to_end(sum, vectors - 1)));

  __m512i sums[vectors];
  add_next();
  sums[0] = sum;
  for (std::size_t k = 1; k < vectors; ++k) sums[k] = take();
  while (at < data.size()) {
    for (__m512i& each : sums) each = multiply_add(each, both(low_to_block, high_to_block), take());
  }
  sum = to_end(sums[0], 0);
  for (std::size_t k = 1; k < vectors; ++k) sum = _mm512_xor_si512(sum, to_end(sums[k], k));
  return ~remainder(sum_of_lanes(sum));
}

}  // namespace

std::uint32_t avx512_crc32(Bytes data) noexcept {
  return fold<false>(data, nullptr);
}

std::uint32_t avx512_crc32_copy(Bytes data, std::uint8_t* to) noexcept {
  return fold<true>(data, to);
}

}  // namespace fastio

#endif
