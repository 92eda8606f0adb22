/// How one sample of a batch went. The numbers are part of the Python interface.
#pragma once

#include <cstdint>

namespace fastio {

enum class Status : std::int32_t {
  ok = 0,
  bad_checksum = 1,  ///< bytes differ from the CRC-32 in the index
  truncated = 2,     ///< the data end before the value does
  corrupt = 3,       ///< not decodable, or decodable only with damage
  unsupported = 4,   ///< a valid kind that is left to Pillow
  bad_shape = 5,     ///< decodes to another height, width or size than the row of the batch has
  not_image = 6,     ///< not recognised as a picture at all
  io_error = 7,      ///< a file could not be opened or read
  changed = 8,       ///< a file has not the size that was announced
  failed = 9,        ///< the user's function on the finished picture failed
  no_memory = 10,    ///< memory for it is lacking
  too_large = 11,    ///< its header announces more pixels than the caller allows
};

/// What is said where Pillow, which may do with less memory or say what is wrong, comes next.
[[nodiscard]] constexpr Status or_pillow(Status status) noexcept {
  return status == Status::no_memory ? Status::unsupported : status;
}

}  // namespace fastio
