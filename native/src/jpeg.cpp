// libjpeg reports errors by a callback that must not return. Here it jumps back to
// `run`, across C frames only: no object with a destructor lives between the two.
#include "fastio/jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <new>

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
#include <jerror.h>
// clang-format on

namespace fastio {
namespace {

/// A progressive file may repeat scans over the whole picture for ever.
constexpr int kMostScans = 500;

Status status_of_error(int code) noexcept {
  switch (code) {
    case JERR_INPUT_EOF:
    case JERR_INPUT_EMPTY: return Status::truncated;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
    case JERR_OUT_OF_MEMORY:
    case JERR_SOF_UNSUPPORTED: return Status::unsupported;
    default: return Status::corrupt;
  }
}

/// Warnings about things that leave the pixels as they should be.
bool is_harmless(int code) noexcept {
  switch (code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR: return true;
    default: return false;
  }
}

}  // namespace

struct JpegDecoder::Handle {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf back;
  Status status;

  bool create() noexcept;
  Status run(Bytes file, const Picture& out, Scratch& rgb_row) noexcept;

  [[noreturn]] static void fail(j_common_ptr common, Status status) noexcept {
    auto* self = static_cast<Handle*>(common->client_data);
    self->status = status;
    std::longjmp(self->back, 1);
  }
  void read_rows(const Picture& out) noexcept;
  void read_grey_rows(const Picture& out, std::uint8_t* rgb) noexcept;
  [[nodiscard]] Status begin(const Picture& out) noexcept;
  void install_callbacks() noexcept;
};

void JpegDecoder::Handle::install_callbacks() noexcept {
  // Not jpeg_std_error: it lies beside code that prints to stderr, which in Debian's archive
  // is not position independent and cannot be linked into a module.
  info.err = &errors;
  errors.reset_error_mgr = [](j_common_ptr c) { c->err->num_warnings = c->err->msg_code = 0; };
  errors.format_message = [](j_common_ptr, char* text) { text[0] = '\0'; };
  errors.error_exit = [](j_common_ptr c) { fail(c, status_of_error(c->err->msg_code)); };
  errors.output_message = [](j_common_ptr) {};
  errors.emit_message = [](j_common_ptr c, int level) {
    if (level >= 0 || is_harmless(c->err->msg_code)) return;
    fail(c, c->err->msg_code == JWRN_JPEG_EOF ? Status::truncated : Status::corrupt);
  };
  source.init_source = [](j_decompress_ptr) {};
  source.term_source = [](j_decompress_ptr) {};
  source.resync_to_restart = jpeg_resync_to_restart;
  source.fill_input_buffer = [](j_decompress_ptr d) -> boolean {
    fail(reinterpret_cast<j_common_ptr>(d), Status::truncated);
  };
  source.skip_input_data = [](j_decompress_ptr d, long count) {
    if (count <= 0) return;
    const auto skip = static_cast<std::size_t>(count);
    if (skip > d->src->bytes_in_buffer) {
      fail(reinterpret_cast<j_common_ptr>(d), Status::truncated);
    }
    d->src->next_input_byte += skip;
    d->src->bytes_in_buffer -= skip;
  };
  progress.progress_monitor = [](j_common_ptr c) {
    if (reinterpret_cast<j_decompress_ptr>(c)->input_scan_number > kMostScans) {
      fail(c, Status::corrupt);
    }
  };
}

bool JpegDecoder::Handle::create() noexcept {
  install_callbacks();
  info.client_data = this;
  if (setjmp(back) != 0) return false;
  jpeg_create_decompress(&info);
  info.src = &source;
  info.progress = &progress;
  return true;
}

Status JpegDecoder::Handle::begin(const Picture& out) noexcept {
  jpeg_read_header(&info, TRUE);
  if (info.image_height != out.height || info.image_width != out.width) return Status::bad_shape;
  const bool known = info.num_components == 1 || info.num_components == 3;
  if (!known || info.data_precision != 8) return Status::unsupported;
  switch (out.channels) {
    case 1:
      info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
      break;
    case 3: info.out_color_space = JCS_RGB; break;
    case 4: info.out_color_space = JCS_EXT_RGBA; break;
    default: return Status::unsupported;
  }
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&info);
  return Status::ok;
}

void JpegDecoder::Handle::read_rows(const Picture& out) noexcept {
  constexpr JDIMENSION kRows = 16;
  JSAMPROW rows[kRows];
  while (info.output_scanline < info.output_height) {
    JDIMENSION count = 0;
    for (; count < kRows && info.output_scanline + count < info.output_height; ++count) {
      rows[count] = out.row(info.output_scanline + count);
    }
    jpeg_read_scanlines(&info, rows, count);
  }
}

void JpegDecoder::Handle::read_grey_rows(const Picture& out, std::uint8_t* rgb) noexcept {
  while (info.output_scanline < info.output_height) {
    std::uint8_t* grey = out.row(info.output_scanline);
    JSAMPROW row = rgb;
    if (jpeg_read_scanlines(&info, &row, 1) == 1) rgb_to_grey(rgb, grey, out.width);
  }
}

Status JpegDecoder::Handle::run(Bytes file, const Picture& out, Scratch& rgb_row) noexcept {
  if (setjmp(back) != 0) {
    jpeg_abort_decompress(&info);
    return status;
  }
  source.next_input_byte = file.data();
  source.bytes_in_buffer = file.size();
  status = begin(out);
  if (status != Status::ok) {
    jpeg_abort_decompress(&info);
    return status;
  }
  if (out.channels == 1 && info.output_components == 3) {
    std::uint8_t* rgb = rgb_row.reserve(3 * out.width);
    if (rgb == nullptr) {
      jpeg_abort_decompress(&info);
      return Status::unsupported;
    }
    read_grey_rows(out, rgb);
  } else {
    read_rows(out);
  }
  jpeg_finish_decompress(&info);  // reads on to the end marker: a file cut behind its pixels is seen
  return Status::ok;
}

JpegDecoder::JpegDecoder() noexcept = default;
JpegDecoder::~JpegDecoder() = default;

void JpegDecoder::FreeHandle::operator()(Handle* handle) const noexcept {
  jpeg_destroy_decompress(&handle->info);
  delete handle;
}

Status JpegDecoder::decode(Bytes file, const Picture& out) noexcept {
  if (!handle_) {
    std::unique_ptr<Handle> fresh(new (std::nothrow) Handle{});
    if (!fresh || !fresh->create()) return Status::unsupported;  // no memory
    handle_.reset(fresh.release());
  }
  return handle_->run(file, out, row_);
}

}  // namespace fastio
