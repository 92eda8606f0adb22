/// Random numbers by vectors (inside the core only).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/philox.h"

namespace fastio {

/// As `philox_steps`, a counter in each lane of a vector; returns how many of the `words` it wrote.
#if defined(__x86_64__)
std::size_t avx2_philox_steps(const PhiloxSteps& from, std::size_t words,
                              std::uint32_t* out) noexcept;
#elif defined(__aarch64__)
std::size_t neon_philox_steps(const PhiloxSteps& from, std::size_t words,
                              std::uint32_t* out) noexcept;
#endif

}  // namespace fastio
