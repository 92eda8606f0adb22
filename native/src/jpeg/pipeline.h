/// Our own decoders of scans, baseline and progressive, in libjpeg-turbo's pipeline.
///
/// Relies on the heads of private structs of libjpeg-turbo: of the entropy decoder start_pass and
/// decode_mcu. They have been so in all versions that `entropy_is_replaceable` names, and must be
/// linked statically.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "jpeg/callbacks.h"
#include "jpeg/huffman.h"
#include "jpeg/jpeg.h"
#include "jpeg/progressive.h"
#include "jpeg/scan_walker.h"

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

// Our decoder of progressive scans in libjpeg-turbo's pipeline.
//
// libjpeg parses all markers, checks each scan's parameters and tables, and does what comes
// after the coefficients. In between, its coefficient controller asks ours for a whole scan.
// Relies on the heads of two private structs, see above.

/// Reads the scans of one file after another.
class ProgressiveScans {
 public:
  static constexpr std::size_t all_rows = std::numeric_limits<std::size_t>::max();

  /// Lets libjpeg call this object for every scan of a progressive file. Before
  /// jpeg_start_decompress or jpeg_read_coefficients; without effect on other files. Rows of
  /// pixels from `bottom` on are not needed: of each scan, what is below them is passed over.
  ///
  /// `info` must report to a JpegEscape, and keeps this object.
  void attach(jpeg_decompress_struct& info, std::size_t bottom) noexcept;

  /// Called by the progress monitor, the first time when the first scan has begun.
  static void watch(jpeg_decompress_struct& info) noexcept;

 private:
  static jvirt_barray_ptr note_array(j_common_ptr object, int pool, boolean pre_zero,
                                     JDIMENSION blocks_a_row, JDIMENSION rows,
                                     JDIMENSION most_rows);
  static int consume_scan(j_decompress_ptr info);
  void take_over(jpeg_decompress_struct& info) noexcept;
  void begin_scan(jpeg_decompress_struct& info) noexcept;
  void read_scan(jpeg_decompress_struct& info) noexcept;

  using RequestArray = decltype(jpeg_memory_mgr::request_virt_barray);

  ProgressiveDecoder decoder_;
  RequestArray request_array_ = nullptr;
  std::array<jvirt_barray_ptr, ProgressiveDecoder::most_components> arrays_{};
  std::array<ProgressiveDecoder::Size, ProgressiveDecoder::most_components> sizes_{};
  std::size_t array_count_ = 0;
  std::size_t bottom_ = all_rows;
  bool has_begun_ = false;
};

}  // namespace fastio
