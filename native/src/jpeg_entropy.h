/// Our own entropy decoder in libjpeg-turbo's pipeline.
///
/// Relies on the head of a private struct of libjpeg-turbo: start_pass, decode_mcu. It has
/// been so in all versions that `entropy_is_replaceable` names, and must be linked statically.
#pragma once

#include "fastio/huffman.h"
#include "fastio/jpeg.h"
#include "fastio/scan_walker.h"
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

/// What an index says of where decoding may start in a file, and room for what that means.
struct ScanHints {
  Intervals places;
  Bytes file;
  JumpTable table{};
};

/// Lets `decoder` pass over what has no part in them, by `hints` where these are of use. Behind
/// use_own_entropy_decoder and jpeg_crop_scanline. Whether points of MCUs are relied on: an error
/// may then be theirs, and the file sound. `hints` must stay.
bool limit_scan(const jpeg_decompress_struct& info, const WantedPixels& pixels, ScanHints& hints,
                HuffmanDecoder& decoder) noexcept;

/// Lets `walker` begin at the scan that has begun, with points about every `spacing` MCUs.
/// `unsupported` where it cannot read the scan, and for restart markers; `no_memory`.
[[nodiscard]] Status begin_walk(const jpeg_decompress_struct& info, Bytes file, std::size_t spacing,
                                ScanWalker& walker) noexcept;

/// Walks what is left of the scan and adds to `table` where its MCUs begin. `unsupported` where
/// other segments follow the scan; damage as from decoding.
[[nodiscard]] Status end_walk(ScanWalker& walker, Blob& table) noexcept;

/// Reads all codes of the one scan that has begun, without a use for them. `ok` where they end as
/// an encoder ends a scan, with ones up to the next byte, and before what fills the file to its
/// end. `truncated` where they do not, or where `decoder` cannot read them; damage as from
/// decoding.
[[nodiscard]] Status read_to_end(const jpeg_decompress_struct& info, Bytes file,
                                 HuffmanDecoder& decoder) noexcept;

/// Where reading all codes of the one scan that has begun ends early, see JpegDecoder::find_damage.
[[nodiscard]] bool find_damage(const jpeg_decompress_struct& info, Bytes file,
                               HuffmanDecoder& decoder, DamagePlace& place) noexcept;

}  // namespace fastio
