/// Unfiltered PNG rows into a picture's channels, as Pillow converts them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fastio/png_chunks.h"

namespace fastio {

/// Converts `width` pixels of one unfiltered row. `samples` is working memory of 4 * width
/// bytes. False where a pixel names a palette entry that does not exist.
[[nodiscard]] bool convert_png_row(const PngChunks& png, const std::uint8_t* row, std::size_t width,
                                   int channels, std::uint8_t* samples, std::uint8_t* out) noexcept;

/// Writes the numbers of `width` pixels from the `first` on, as PngDecoder::decode_numbers has
/// them: a byte each, or two of the machine's order where the depth is 16.
void expand_png_numbers(const PngHeader& header, const std::uint8_t* row, std::size_t first,
                        std::size_t width, std::uint8_t* out) noexcept;

}  // namespace fastio
