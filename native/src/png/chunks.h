/// A PNG file taken apart into its chunks, before anything is inflated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"

namespace fastio {

enum class PngColor : std::uint8_t { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgba = 6 };

/// What the header says. Only combinations that PNG allows are ever stored here.
struct PngHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int depth = 0;  ///< bits per sample: 1, 2, 4, 8 or 16
  PngColor color = PngColor::grey;
  bool interlaced = false;

  [[nodiscard]] int samples() const noexcept;  ///< per pixel, as stored
  [[nodiscard]] std::size_t bits_per_pixel() const noexcept {
    return static_cast<std::size_t>(samples() * depth);
  }
  [[nodiscard]] std::size_t row_bytes(std::size_t pixels) const noexcept {
    return (pixels * bits_per_pixel() + 7) / 8;
  }
};

/// Deflate shrinks to a 1032nd at most: a header that announces more than that of its file's size
/// is not believed, so that it cannot make us ask for more memory than the file can fill.
inline constexpr std::size_t most_inflated = 1032;

/// Reads signature and IHDR. `not_image` without the signature.
[[nodiscard]] Status read_png_header(Bytes file, PngHeader& header) noexcept;

/// The chunks that matter for pixels. Refers to the file's bytes; kept between files so
/// that its memory is.
struct PngChunks {
  PngHeader header;
  std::size_t palette_size = 0;
  std::array<std::uint8_t, 256 * 4> palette{};  ///< RGBA; the first palette_size are set
  bool has_key = false;
  std::array<std::uint16_t, 3> key{};  ///< the transparent colour (grey: the first)
  std::vector<Bytes> data;             ///< the zlib stream, in pieces
  std::size_t data_size = 0;
};

/// Walks the whole file up to IEND.
///
/// The CRCs of all chunks before the first IDAT (header, palette, transparency) are always
/// compared, as Pillow does; those of IDAT and of what follows only with `verify_data`.
/// `truncated` where the file ends before the first IDAT, `corrupt` where chunks break the rules,
/// `unsupported` for what Pillow shall judge (animations, unknown critical chunks, files that break
/// off between the first IDAT and IEND).
[[nodiscard]] Status read_png_chunks(Bytes file, bool verify_data, PngChunks& chunks) noexcept;

/// Compares the CRCs of all chunks up to IEND: `bad_checksum` at the first that differs,
/// `truncated` or `corrupt` where the chunks break off before IEND.
[[nodiscard]] Status check_png_chunks(Bytes file) noexcept;

/// Whether a chunk of this name stands in the file, as far as its chunks follow each other.
[[nodiscard]] bool has_png_chunk(Bytes file, const char (&name)[5]) noexcept;

}  // namespace fastio
