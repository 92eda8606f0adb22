/// Our decoder of progressive scans in libjpeg-turbo's pipeline.
///
/// libjpeg parses all markers, checks each scan's parameters and tables, and does what comes
/// after the coefficients. In between, its coefficient controller asks ours for a whole scan.
/// Relies on the heads of two private structs, see src/jpeg_entropy.h.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "fastio/progressive.h"
#include "jpeg_callbacks.h"

namespace fastio {

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
