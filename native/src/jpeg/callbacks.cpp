#include "jpeg/callbacks.h"

// clang-format off
#include <jerror.h>  // needs jpeglib.h before it
// clang-format on

namespace fastio {
namespace {

Status status_of_error(int code) noexcept {
  switch (code) {
    case JERR_INPUT_EOF:
    case JERR_INPUT_EMPTY: return Status::truncated;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
    case JERR_SOF_UNSUPPORTED: return Status::unsupported;
    case JERR_OUT_OF_MEMORY: return Status::no_memory;
    default: return Status::corrupt;
  }
}

/// What a warning means: libjpeg goes on after all of them and patches over damage.
Status status_of_warning(int code) noexcept {
  switch (code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR: return Status::ok;  // the pixels are as they should be
    case JWRN_BOGUS_PROGRESSION: return Status::unsupported;
    case JWRN_JPEG_EOF: return Status::truncated;
    default: return Status::corrupt;
  }
}

}  // namespace

void leave(j_common_ptr object, Status status) noexcept {
  auto* escape = static_cast<JpegEscape*>(object->client_data);
  escape->outcome = status;
  std::longjmp(escape->back, 1);
}

void report_to(j_common_ptr object, jpeg_error_mgr& errors, JpegEscape& escape) noexcept {
  // Not jpeg_std_error: it lies beside code that prints to stderr, which in Debian's archive
  // is not position independent and cannot be linked into a module.
  object->err = &errors;
  object->client_data = &escape;
  errors.reset_error_mgr = [](j_common_ptr c) { c->err->num_warnings = c->err->msg_code = 0; };
  errors.format_message = [](j_common_ptr, char* text) { text[0] = '\0'; };
  errors.error_exit = [](j_common_ptr c) {
    const Status status = status_of_error(c->err->msg_code);
    const bool is_fault_of_file = c->is_decompressor != 0 || status == Status::no_memory;
    leave(c, is_fault_of_file ? status : Status::unsupported);
  };
  errors.output_message = [](j_common_ptr) {};
  errors.emit_message = [](j_common_ptr c, int level) {
    if (level >= 0) return;  // a trace
    const Status status = status_of_warning(c->err->msg_code);
    if (status != Status::ok) leave(c, status);
  };
}

void read_from(jpeg_decompress_struct& info, jpeg_source_mgr& source, Bytes file) noexcept {
  source.init_source = [](j_decompress_ptr) {};
  source.term_source = [](j_decompress_ptr) {};
  source.resync_to_restart = jpeg_resync_to_restart;
  source.fill_input_buffer = [](j_decompress_ptr d) -> boolean {
    leave(reinterpret_cast<j_common_ptr>(d), Status::truncated);
  };
  source.skip_input_data = [](j_decompress_ptr d, long count) {
    if (count <= 0) return;
    const auto skip = static_cast<std::size_t>(count);
    if (skip > d->src->bytes_in_buffer) {
      leave(reinterpret_cast<j_common_ptr>(d), Status::truncated);
    }
    d->src->next_input_byte += skip;
    d->src->bytes_in_buffer -= skip;
  };
  source.next_input_byte = file.data();
  source.bytes_in_buffer = file.size();
  info.src = &source;
}

bool is_complete(const jpeg_decompress_struct& info) noexcept {
  if (info.progressive_mode == 0 || info.coef_bits == nullptr) return true;
  for (int component = 0; component < info.num_components; ++component) {
    for (int i = 0; i < DCTSIZE2; ++i) {
      if (info.coef_bits[component][i] != 0) return false;
    }
  }
  return true;
}

bool asks_too_much(const jpeg_decompress_struct& info, std::size_t file_bytes) noexcept {
  const std::size_t blocks = std::size_t{info.image_width} * info.image_height / DCTSIZE2;
  const std::size_t blocks_a_byte = info.arith_code != 0 ? 512 : 8;
  return blocks / blocks_a_byte > file_bytes;
}

}  // namespace fastio
