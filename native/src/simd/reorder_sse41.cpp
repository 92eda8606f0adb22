// Pixels' bytes reordered in SSE4.1: one shuffle for the 4 or 5 pixels that 16 bytes hold.
#if defined(__x86_64__)

#include <smmintrin.h>

#include <algorithm>

#include "pictures/pixels.h"

namespace fastio {
namespace {

constexpr std::size_t block = 16;

/// What a step picks from its block, and the bits that it sets: alphas that are not stored.
struct Step {
  __m128i from;
  __m128i set;
};

Step step_of(const ByteOrder& order, std::size_t channels, std::size_t count) noexcept {
  alignas(block) std::uint8_t from[block];
  alignas(block) std::uint8_t set[block] = {};
  std::fill(from, from + block, 0x80);  // becomes 0
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < channels; ++c) {
      if (c == 3 && !order.has_alpha) {
        set[i * channels + c] = 0xFF;
      } else {
        from[i * channels + c] = static_cast<std::uint8_t>(i * order.pixel_bytes + order.places[c]);
      }
    }
  }
  return {_mm_load_si128(reinterpret_cast<const __m128i*>(from)),
          _mm_load_si128(reinterpret_cast<const __m128i*>(set))};
}

}  // namespace

std::size_t sse41_reorder(const std::uint8_t* in, const ByteOrder& order, std::uint8_t* out,
                          std::size_t channels, std::size_t pixels) noexcept {
  const std::size_t count = block / std::max(order.pixel_bytes, channels);
  // Blocks are loaded and stored whole: neither may reach behind the last pixel.
  const std::size_t needed =
      (block + std::min(order.pixel_bytes, channels) - 1) / std::min(order.pixel_bytes, channels);
  const auto [from, set] = step_of(order, channels, count);
  std::size_t done = 0;
  for (; done + needed <= pixels; done += count) {
    const auto* bytes = reinterpret_cast<const __m128i*>(in + done * order.pixel_bytes);
    const __m128i picked = _mm_shuffle_epi8(_mm_loadu_si128(bytes), from);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + done * channels), _mm_or_si128(picked, set));
  }
  return done;
}

}  // namespace fastio

#endif
