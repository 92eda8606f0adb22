/// Random numbers by vectors (inside the core only).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/philox.h"

namespace fastio {

#if defined(__x86_64__)
/// As `philox_steps`, eight counters at a time.
void avx2_philox_steps(const PhiloxSteps& from, std::size_t eights, std::uint32_t* out) noexcept;
#endif

}  // namespace fastio
