/// Our own entropy decoder in libjpeg-turbo's pipeline.
///
/// Relies on the head of a private struct of libjpeg-turbo: start_pass, decode_mcu. It has
/// been so in all versions that `entropy_is_replaceable` names, and must be linked statically.
#pragma once

#include "fastio/huffman.h"
#include "jpeg_callbacks.h"

namespace fastio {

/// Whether this build may replace the entropy decoder at all.
[[nodiscard]] bool entropy_is_replaceable() noexcept;

/// Lets libjpeg call `decoder` for every MCU to come, if it can read them: sequential, Huffman,
/// 8 bits, all components in one scan. When the scan has begun: libjpeg has checked its tables.
/// Without effect otherwise. `info` must report to a JpegEscape, and keeps `decoder`.
void use_own_entropy_decoder(jpeg_decompress_struct& info, HuffmanDecoder& decoder) noexcept;

/// The pixels of a picture that matter, upper ends excluded.
struct WantedPixels {
  std::size_t x, right, y, bottom;
};

/// Lets `decoder` pass over what has no part in them. Behind use_own_entropy_decoder.
void limit_scan(const jpeg_decompress_struct& info, const WantedPixels& pixels,
                HuffmanDecoder& decoder) noexcept;

}  // namespace fastio
