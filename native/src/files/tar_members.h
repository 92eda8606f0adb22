/// Members of a tar archive: header, content, padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/bytes.h"

namespace fastio {

inline constexpr std::size_t tar_block = 512;
inline constexpr std::size_t tar_name_max = 100;
inline constexpr std::uint64_t tar_size_max =
    (std::uint64_t{8} << 30) - 1;  ///< eleven octal digits

/// A file that holds `prefix` and then `value`.
struct TarMember {
  std::string_view name;
  Bytes prefix;
  Bytes value;
};

/// Whether the name and the size fit into a ustar header, without extensions.
[[nodiscard]] bool fits_ustar(const TarMember& member) noexcept;

/// Bytes of a member with its header and padding.
[[nodiscard]] constexpr std::size_t tar_member_bytes(std::size_t size) noexcept {
  return tar_block + (size + tar_block - 1) / tar_block * tar_block;
}

/// Writes `tar_member_bytes` of one that fits; owner 0, mode 644, time 0. Never throws.
void write_tar_member(const TarMember& member, std::uint8_t* out) noexcept;

}  // namespace fastio
