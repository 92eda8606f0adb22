/// How libjpeg reports to us, and reads from memory: for those who decode and those who rewrite.
///
/// libjpeg reports errors by a callback that must not return. Here it jumps back to where
/// `setjmp(escape.back)` was called, across C frames only: no object with a destructor may live
/// between the two.
#pragma once

#include <csetjmp>
#include <cstdio>

#include "core/bytes.h"
#include "core/status.h"

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

namespace fastio {

class HuffmanDecoder;
class ProgressiveScans;

/// Where libjpeg's errors lead to, and what they were.
struct JpegEscape {
  std::jmp_buf back{};
  Status outcome = Status::ok;
  HuffmanDecoder* huffman = nullptr;        ///< see use_own_entropy_decoder
  ProgressiveScans* progressive = nullptr;  ///< see ProgressiveScans::attach
};

/// Leaves libjpeg with `status`. The object's client_data must be a JpegEscape.
[[noreturn]] void leave(j_common_ptr object, Status status) noexcept;

/// Lets an object of libjpeg report to `escape`: errors and warnings that touch pixels leave it.
/// What fails in writing is `unsupported`, but for lack of memory. Before jpeg_create_*, which
/// keeps both pointers.
void report_to(j_common_ptr object, jpeg_error_mgr& errors, JpegEscape& escape) noexcept;

/// Lets libjpeg read from memory; `truncated` where it asks for more. After jpeg_create_decompress.
void read_from(jpeg_decompress_struct& info, jpeg_source_mgr& source, Bytes file) noexcept;

/// Whether every coefficient of a progressive file has been sent in full. Otherwise libjpeg
/// guesses the missing ones, differently from version to version.
[[nodiscard]] bool is_complete(const jpeg_decompress_struct& info) noexcept;

/// Whether memory for all coefficients would be asked for that the file cannot fill: a block has
/// a bit at least, and 1/64 at the very least where it is coded arithmetically.
[[nodiscard]] bool asks_too_much(const jpeg_decompress_struct& info,
                                 std::size_t file_bytes) noexcept;

/// A progressive file may repeat scans over the whole picture for ever.
inline constexpr int most_jpeg_scans = 500;

/// The casts to what objects for reading and writing have in common.
[[nodiscard]] inline j_common_ptr common(jpeg_decompress_struct& info) noexcept {
  return reinterpret_cast<j_common_ptr>(&info);
}
[[nodiscard]] inline j_common_ptr common(jpeg_compress_struct& info) noexcept {
  return reinterpret_cast<j_common_ptr>(&info);
}

}  // namespace fastio
