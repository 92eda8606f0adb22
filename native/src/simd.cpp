#include "fastio/simd.h"

#include <cstdlib>
#include <cstring>

namespace fastio {
namespace {

SimdLevel detect() noexcept {
  const char* wish = std::getenv("FASTIO_SIMD");
  if (wish != nullptr && std::strcmp(wish, "none") == 0) return SimdLevel::none;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return SimdLevel::avx2;
  if (__builtin_cpu_supports("sse4.1")) return SimdLevel::sse41;
#endif
  return SimdLevel::none;
}

}  // namespace

SimdLevel simd_level() noexcept {
  static const SimdLevel level = detect();
  return level;
}

const char* simd_name(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::avx2: return "avx2";
    case SimdLevel::sse41: return "sse4.1";
    case SimdLevel::none: break;
  }
  return "none";
}

}  // namespace fastio
