/// The loop that widens ids, compiled once for each instruction set (inside the core only).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastio {

#if defined(__x86_64__)
std::uint32_t avx2_widen16(const std::uint8_t* from, std::size_t count, std::int64_t* out) noexcept;
std::uint32_t avx2_widen32(const std::uint8_t* from, std::size_t count, std::int64_t* out) noexcept;
std::uint32_t avx512_widen16(const std::uint8_t* from, std::size_t count,
                             std::int64_t* out) noexcept;
std::uint32_t avx512_widen32(const std::uint8_t* from, std::size_t count,
                             std::int64_t* out) noexcept;
#endif

namespace {  // each file that includes this compiles a loop of its own, by its own flags

template <typename Id>
std::uint32_t widen(const std::uint8_t* from, std::size_t count, std::int64_t* out) noexcept {
  Id highest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, from + i * sizeof(Id), sizeof(Id));
    highest = std::max(highest, id);
    out[i] = static_cast<std::int64_t>(id);
  }
  return highest;
}

}  // namespace
}  // namespace fastio
