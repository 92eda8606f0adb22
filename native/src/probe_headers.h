/// One header reader per kind of picture (inside the core only).
#pragma once

#include <cstdint>

#include "fastio/bytes.h"
#include "fastio/status.h"

namespace fastio {

/// What a header says, before it is judged.
struct Size {
  Status status;
  std::int64_t height;
  std::int64_t width;
  std::int32_t channels;
};

[[nodiscard]] bool is_space(std::uint8_t c) noexcept;
[[nodiscard]] bool is_bmp(Bytes file) noexcept;
[[nodiscard]] bool is_pnm(Bytes file) noexcept;

// Each is called with a file of its kind and trusts nothing behind the signature.
/// `marker` becomes that of the frame header.
[[nodiscard]] Size probe_jpeg(Bytes file, std::uint32_t& marker) noexcept;
[[nodiscard]] Size probe_gif(Bytes file) noexcept;
[[nodiscard]] Size probe_bmp(Bytes file) noexcept;
[[nodiscard]] Size probe_webp(Bytes file) noexcept;
[[nodiscard]] Size probe_tiff(Bytes file) noexcept;
[[nodiscard]] Size probe_pnm(Bytes file) noexcept;

/// Whether the file of a TIFF ends before its first directory does, or before a value, strip or
/// tile that this names. False where it says of none how large they are.
[[nodiscard]] bool tiff_breaks_off(Bytes file) noexcept;

/// The next number of a PNM header, behind white space and comments; moves `at` behind it. -1 where
/// there is none, or one of more than ten digits, which Pillow refuses.
[[nodiscard]] std::int64_t pnm_number(Bytes file, std::size_t& at) noexcept;

}  // namespace fastio
