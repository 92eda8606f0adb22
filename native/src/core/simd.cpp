#include "core/simd.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace fastio {
namespace {

/// What this machine has.
SimdLevel best() noexcept {
#if defined(__x86_64__)
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vnni") &&
                          __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
  if (has_avx512) return SimdLevel::avx512;
  if (__builtin_cpu_supports("avx2")) return SimdLevel::avx2;
  if (__builtin_cpu_supports("sse4.2")) return SimdLevel::sse41;
#elif defined(__aarch64__)
  return SimdLevel::neon;
#endif
  return SimdLevel::none;
}

SimdLevel detect() noexcept {
  const SimdLevel found = best();
  const char* wish = std::getenv("FASTIO_SIMD");
  if (wish == nullptr) return found;
  for (const SimdLevel level : {SimdLevel::none, SimdLevel::sse41, SimdLevel::avx2}) {
    if (std::strcmp(wish, simd_name(level)) == 0) return std::min(level, found);
  }
  return found;
}

}  // namespace

SimdLevel simd_level() noexcept {
  static const SimdLevel level = detect();
  return level;
}

const char* simd_name(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::avx512: return "avx512";
    case SimdLevel::avx2: return "avx2";
    case SimdLevel::sse41: return "sse4.1";
    case SimdLevel::neon: return "neon";
    case SimdLevel::none: break;
  }
  return "none";
}

}  // namespace fastio
