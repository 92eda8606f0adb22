/// Loops over runs of slots, which are as short as a sample: plain, and for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/simd.h"

namespace fastio {

/// What fills slots. Nothing beside the `count` slots of `out` is read or written.
struct SlotLoops {
  /// `first`, `first` + 1, ...
  void (*count_up)(std::int64_t first, std::size_t count, std::int64_t* out) noexcept;
  void (*repeat)(std::int64_t value, std::size_t count, std::int64_t* out) noexcept;
  void (*repeat32)(std::int32_t value, std::size_t count, std::int32_t* out) noexcept;
  /// `from` and `out` do not overlap.
  void (*copy)(const std::int64_t* from, std::size_t count, std::int64_t* out) noexcept;
};

/// Those of the best instruction set up to `level`.
[[nodiscard]] const SlotLoops& slot_loops(SimdLevel level) noexcept;

#if defined(__x86_64__)
extern const SlotLoops avx2_slot_loops;
extern const SlotLoops avx512_slot_loops;
#endif

namespace {  // each file that includes this compiles loops of its own, by its own flags

[[maybe_unused]] constexpr SlotLoops plain_slot_loops{
    [](std::int64_t first, std::size_t count, std::int64_t* out) noexcept {
      for (std::size_t i = 0; i < count; ++i) out[i] = first + static_cast<std::int64_t>(i);
    },
    [](std::int64_t value, std::size_t count, std::int64_t* out) noexcept {
      for (std::size_t i = 0; i < count; ++i) out[i] = value;
    },
    [](std::int32_t value, std::size_t count, std::int32_t* out) noexcept {
      for (std::size_t i = 0; i < count; ++i) out[i] = value;
    },
    [](const std::int64_t* from, std::size_t count, std::int64_t* out) noexcept {
      for (std::size_t i = 0; i < count; ++i) out[i] = from[i];
    }};

}  // namespace
}  // namespace fastio
