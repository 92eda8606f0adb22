/// Rows of pixels mirrored, taken apart into one plane for each channel, and put together again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "core/gather.h"
#include "core/simd.h"
#include "transform/resize.h"

namespace fastio {

/// Copies `rows` rows of `pixels` pixels of 1, 3 or 4 bytes, each last one first. Nothing outside
/// the rows of both is touched; they must not overlap. Thread-safe.
using MirrorRows = void (*)(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                            std::size_t rows) noexcept;

/// The routine for a number of channels and an instruction set.
[[nodiscard]] MirrorRows mirror_rows(int channels, SimdLevel level) noexcept;

// Mirrored rows by instruction set (inside the core only).

/// One row, pixel by pixel.
template <std::size_t channels>
void mirror_pixels(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  for (std::size_t i = 0; i < pixels; ++i) {
    std::memcpy(out + i * channels, in + (pixels - 1 - i) * channels, channels);
  }
}

#if defined(__x86_64__)
void sse41_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept;
void sse41_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept;
void sse41_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept;
#elif defined(__aarch64__)
void neon_mirror1(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
void neon_mirror3(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
void neon_mirror4(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                  std::size_t rows) noexcept;
#endif

// Rows of pixels taken apart into one plane for each channel.

/// Where the planes lie: the first of them, the next `plane` bytes further, each in rows of
/// `stride` bytes.
struct PlanesTarget {
  std::uint8_t* data;
  std::size_t stride;
  std::size_t plane;
};

/// Writes channel c of `rows` rows of `pixels` pixels into plane c, for 1, 3 or 4 channels, each
/// row last one first where `mirrored`. Nothing outside the rows is written, nothing before the
/// first one or behind the last one is read; both must not overlap. Thread-safe.
using SplitRows = void (*)(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                           std::size_t rows, bool mirrored) noexcept;

/// The routine for a number of channels and an instruction set.
[[nodiscard]] SplitRows split_rows(int channels, SimdLevel level) noexcept;

// Rows taken apart into planes by instruction set (inside the core only).

/// One row, pixel by pixel.
template <std::size_t channels>
void split_pixels(const std::uint8_t* in, std::uint8_t* out, std::size_t plane, std::size_t pixels,
                  bool mirrored) noexcept {
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < pixels; ++i) {
      out[c * plane + (mirrored ? pixels - 1 - i : i)] = in[i * channels + c];
    }
  }
}

#if defined(__x86_64__)
void sse41_split3(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows, bool mirrored) noexcept;
void sse41_split4(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows, bool mirrored) noexcept;
#elif defined(__aarch64__)
void neon_split3(const PixelView& in, const PlanesTarget& out, std::size_t pixels, std::size_t rows,
                 bool mirrored) noexcept;
void neon_split4(const PixelView& in, const PlanesTarget& out, std::size_t pixels, std::size_t rows,
                 bool mirrored) noexcept;
#endif

// Planes put together.

/// Where planes lie; as PlanesTarget.
struct PlanesView {
  const std::uint8_t* data;
  std::size_t stride;
  std::size_t plane;
};

/// Writes `rows` rows of `pixels` pixels, channel c from plane c, for 1, 3 or 4 channels. Nothing
/// outside the rows of both is touched; they must not overlap. Thread-safe.
using JoinRows = void (*)(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                          std::size_t rows) noexcept;

/// The routine for a number of channels and an instruction set.
[[nodiscard]] JoinRows join_rows(int channels, SimdLevel level) noexcept;

/// A task as `gather_task`, for values that are so many (1, 3 or 4) planes each, one behind the
/// other: rows are their pixels.
[[nodiscard]] std::unique_ptr<Task> join_task(std::unique_ptr<Bytes[]> spans, const Rows& rows,
                                              int channels) noexcept;

// Planes put together by instruction set (inside the core only).

/// Pixels [first, pixels) of one row, one by one.
template <std::size_t channels>
void join_pixels(const std::uint8_t* in, std::size_t plane, std::uint8_t* out, std::size_t first,
                 std::size_t pixels) noexcept {
  for (std::size_t i = first; i < pixels; ++i) {
    for (std::size_t c = 0; c < channels; ++c) out[i * channels + c] = in[c * plane + i];
  }
}

#if defined(__x86_64__)
void sse41_join3(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                 std::size_t rows) noexcept;
void sse41_join4(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                 std::size_t rows) noexcept;
#elif defined(__aarch64__)
void neon_join3(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                std::size_t rows) noexcept;
void neon_join4(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                std::size_t rows) noexcept;
#endif

}  // namespace fastio
