/// Our own entropy decoder in libjpeg-turbo's pipeline.
///
/// Relies on the head of a private struct of libjpeg-turbo: start_pass, decode_mcu. It has
/// been so in all versions that `entropy_is_replaceable` names, and must be linked statically.
#pragma once

#include <cstdio>

#include "fastio/huffman.h"

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

namespace fastio {

/// Whether this build may replace the entropy decoder at all.
[[nodiscard]] bool entropy_is_replaceable() noexcept;

/// Hands scan and tables to `decoder` if it can read them: sequential, Huffman, 8 bits, all
/// components in one scan. After jpeg_start_decompress, which checks the tables.
[[nodiscard]] bool begin_scan(const jpeg_decompress_struct& info, HuffmanDecoder& decoder) noexcept;

/// The pixels of a picture that matter, upper ends excluded.
struct WantedPixels {
  std::size_t x, right, y, bottom;
};

/// Lets `decoder` pass over what has no part in them. With begin_scan.
void limit_scan(const jpeg_decompress_struct& info, const WantedPixels& pixels,
                HuffmanDecoder& decoder) noexcept;

/// Lets libjpeg call `decode_mcu` for every MCU to come; blocks are null where it skips.
void replace_entropy_decoder(jpeg_decompress_struct& info,
                             boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*)) noexcept;

}  // namespace fastio
