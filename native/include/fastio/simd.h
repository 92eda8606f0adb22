/// Which instruction sets the inner loops may use.
#pragma once

namespace fastio {

/// Instruction sets that routines are written for, each with those before it. All give the
/// same bytes.
enum class SimdLevel { none, sse41, avx2 };

/// The best level of this machine, or `none` where the environment says FASTIO_SIMD=none.
/// Asked once, kept for the life of the process.
[[nodiscard]] SimdLevel simd_level() noexcept;

/// Its name: "none", "sse4.1", "avx2".
[[nodiscard]] const char* simd_name(SimdLevel level) noexcept;

}  // namespace fastio
