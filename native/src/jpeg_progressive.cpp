#include "jpeg_progressive.h"

#include <algorithm>
#include <cstring>

namespace fastio {
namespace {

/// The head of libjpeg-turbo's `jpeg_input_controller`.
struct InputControllerHead {
  int (*consume_input)(j_decompress_ptr);
  void (*reset_input_controller)(j_decompress_ptr);
  void (*start_input_pass)(j_decompress_ptr);
  void (*finish_input_pass)(j_decompress_ptr);
};

/// The head of libjpeg-turbo's `jpeg_d_coef_controller`.
struct CoefficientControllerHead {
  void (*start_input_pass)(j_decompress_ptr);
  int (*consume_data)(j_decompress_ptr);
};

InputControllerHead& input_of(jpeg_decompress_struct& info) noexcept {
  return *reinterpret_cast<InputControllerHead*>(info.inputctl);
}

JpegEscape& escape_of(const jpeg_decompress_struct& info) noexcept {
  return *static_cast<JpegEscape*>(info.client_data);
}

HuffmanCodes codes_of(jpeg_decompress_struct& info, const JHUFF_TBL* table) noexcept {
  if (table == nullptr) leave(common(info), Status::corrupt);
  return {std::span<const UINT8, 17>(table->bits).subspan<1>(),
          std::span<const UINT8, 256>(table->huffval)};
}

/// Moves on to the next marker that ends a scan; `truncated` without one.
Status pass_to_end_of_scan(Bytes& input) noexcept {
  const std::uint8_t* next = input.data();
  const std::uint8_t* const stop = next + input.size();
  while (true) {
    const auto left = static_cast<std::size_t>(stop - next);
    next = left < 2 ? nullptr : static_cast<const std::uint8_t*>(std::memchr(next, 0xFF, left - 1));
    if (next == nullptr) return Status::truncated;
    const std::uint8_t code = next[1];
    const bool is_restart = code >= JPEG_RST0 && code <= JPEG_RST0 + 7;
    if (code != 0 && code != 0xFF && !is_restart) break;
    next += code == 0xFF ? 1 : 2;
  }
  input = {next, stop};
  return Status::ok;
}

}  // namespace

void ProgressiveScans::attach(jpeg_decompress_struct& info, std::size_t bottom) noexcept {
  escape_of(info).progressive = nullptr;
  if (info.progressive_mode == 0 || info.arith_code != 0 || info.data_precision != 8) return;
  bottom_ = bottom;
  array_count_ = 0;
  has_begun_ = false;
  request_array_ = info.mem->request_virt_barray;
  info.mem->request_virt_barray = note_array;
  escape_of(info).progressive = this;
}

/// Called by libjpeg for the coefficients of each component, in order.
jvirt_barray_ptr ProgressiveScans::note_array(j_common_ptr object, int pool, boolean pre_zero,
                                              JDIMENSION blocks_a_row, JDIMENSION rows,
                                              JDIMENSION most_rows) {
  ProgressiveScans& self = *static_cast<JpegEscape*>(object->client_data)->progressive;
  jvirt_barray_ptr array =
      self.request_array_(object, pool, pre_zero, blocks_a_row, rows, most_rows);
  if (self.array_count_ < self.arrays_.size()) {
    self.arrays_[self.array_count_] = array;
    self.sizes_[self.array_count_] = {blocks_a_row, rows};
  }
  ++self.array_count_;
  return array;
}

void ProgressiveScans::watch(jpeg_decompress_struct& info) noexcept {
  ProgressiveScans* self = escape_of(info).progressive;
  if (self != nullptr && !self->has_begun_) self->take_over(info);
}

void ProgressiveScans::take_over(jpeg_decompress_struct& info) noexcept {
  has_begun_ = true;
  info.mem->request_virt_barray = request_array_;
  const auto components = static_cast<std::size_t>(info.num_components);
  if (array_count_ != components || components > arrays_.size()) return;
  if (!decoder_.begin_picture(std::span(sizes_).first(components))) {
    leave(common(info), Status::no_memory);
  }
  reinterpret_cast<CoefficientControllerHead*>(info.coef)->consume_data = consume_scan;
  input_of(info).consume_input = consume_scan;  // the first scan has begun
}

int ProgressiveScans::consume_scan(j_decompress_ptr info) {
  ProgressiveScans& self = *escape_of(*info).progressive;
  self.begin_scan(*info);
  self.read_scan(*info);
  info->input_iMCU_row = info->total_iMCU_rows;
  input_of(*info).finish_input_pass(info);
  return JPEG_SCAN_COMPLETED;
}

void ProgressiveScans::begin_scan(jpeg_decompress_struct& info) noexcept {
  const ProgressiveDecoder::Scan scan{.first = static_cast<std::uint32_t>(info.Ss),
                                      .last = static_cast<std::uint32_t>(info.Se),
                                      .low = static_cast<std::uint32_t>(info.Al),
                                      .refines = info.Ah != 0,
                                      .restart_interval = info.restart_interval};
  std::array<ProgressiveDecoder::Component, ProgressiveDecoder::most_components> components{};
  const auto count = static_cast<std::size_t>(info.comps_in_scan);
  for (std::size_t i = 0; i < count; ++i) {
    const jpeg_component_info& component = *info.cur_comp_info[i];
    components[i] = {.number = static_cast<std::size_t>(component.component_index),
                     .mcu_width = static_cast<std::size_t>(component.MCU_width),
                     .mcu_height = static_cast<std::size_t>(component.MCU_height),
                     .dc_table = static_cast<std::size_t>(component.dc_tbl_no)};
    if (scan.first == 0 && !scan.refines) {
      const HuffmanCodes codes = codes_of(info, info.dc_huff_tbl_ptrs[component.dc_tbl_no]);
      decoder_.set_dc_table(components[i].dc_table, codes);
    }
  }
  if (scan.first != 0) {
    const int table = info.cur_comp_info[0]->ac_tbl_no;
    decoder_.set_ac_table(codes_of(info, info.ac_huff_tbl_ptrs[table]));
  }
  decoder_.begin_scan(scan, std::span(components).first(count));
}

void ProgressiveScans::read_scan(jpeg_decompress_struct& info) noexcept {
  Bytes input(info.src->next_input_byte, info.src->bytes_in_buffer);
  Status status = Status::ok;
  std::array<ProgressiveDecoder::Rows, ProgressiveDecoder::most_components> rows{};
  const auto count = static_cast<std::size_t>(info.comps_in_scan);
  const std::size_t height_of_row =
      std::size_t{DCTSIZE} * static_cast<unsigned>(info.max_v_samp_factor);
  for (JDIMENSION row = 0; row < info.total_iMCU_rows && status == Status::ok; ++row) {
    // Smooth upsampling looks at the next row's pixels.
    if (row > 0 && (row - 1) * height_of_row >= bottom_) {
      status = pass_to_end_of_scan(input);
      break;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const jpeg_component_info& component = *info.cur_comp_info[i];
      const auto blocks = static_cast<JDIMENSION>(component.v_samp_factor);
      rows[i] = {info.mem->access_virt_barray(
                     common(info), arrays_[static_cast<std::size_t>(component.component_index)],
                     row * blocks, blocks, TRUE),
                 std::size_t{row} * blocks};
    }
    // Several components are interleaved; one alone has rows of blocks, fewer in the last row.
    const jpeg_component_info& first = *info.cur_comp_info[0];
    const auto blocks = static_cast<std::size_t>(first.v_samp_factor);
    const std::size_t mcu_rows =
        count > 1 ? 1 : std::min<std::size_t>(blocks, first.height_in_blocks - row * blocks);
    for (std::size_t y = 0; y < mcu_rows && status == Status::ok; ++y) {
      status = decoder_.decode_row(input, std::span(rows).first(count), info.MCUs_per_row);
      ++rows[0].blocks;
      ++rows[0].first_row;
    }
  }
  if (status != Status::ok) leave(common(info), status);
  info.src->next_input_byte = input.data();
  info.src->bytes_in_buffer = input.size();
}

}  // namespace fastio
