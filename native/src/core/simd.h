/// Which instruction sets the inner loops may use.
#pragma once

namespace fastio {

/// Instruction sets that routines are written for: NEON on 64-bit ARM, which always has it; the
/// others on x86, each with those before it. All give the same bytes.
/// `avx512` stands for what servers have had since Ice Lake and Zen 4: F, BW, VL, DQ, VNNI
/// and VPCLMULQDQ.
enum class SimdLevel { none, neon, sse41, avx2, avx512 };

/// The best level of this machine, or the one that the environment names, if that is lower:
/// FASTIO_SIMD=none, sse4.1, avx2. Asked once, kept for the life of the process.
[[nodiscard]] SimdLevel simd_level() noexcept;

/// Its name: "none", "neon", "sse4.1", "avx2", "avx512".
[[nodiscard]] const char* simd_name(SimdLevel level) noexcept;

}  // namespace fastio
