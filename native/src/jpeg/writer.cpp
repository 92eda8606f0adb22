#include "jpeg/writer.h"

#include <cstring>
#include <new>

#include "jpeg/callbacks.h"
#include "jpeg/jpeg.h"
#include "jpeg/pipeline.h"

namespace fastio {
namespace {

constexpr unsigned longest_segment = 0xFFFF;
constexpr int most_mcu_blocks = 10;

/// Lets libjpeg write to a Blob.
struct BlobDestination {
  jpeg_destination_mgr manager;  // first: libjpeg knows of this only
  Blob* out;
};

BlobDestination& destination(j_compress_ptr info) noexcept {
  return *reinterpret_cast<BlobDestination*>(info->dest);
}

/// Offers what the blob has room for, at least a little.
void offer(j_compress_ptr info) noexcept {
  auto& [manager, out] = destination(info);
  if (!out->reserve(std::max<std::size_t>(2 * out->size(), out->size() + 4096))) {
    leave(reinterpret_cast<j_common_ptr>(info), Status::no_memory);
  }
  manager.next_output_byte = out->data() + out->size();
  manager.free_in_buffer = out->capacity() - out->size();
}

void write_to(jpeg_compress_struct& info, BlobDestination& to, Blob& out) noexcept {
  to.out = &out;
  to.manager.init_destination = offer;
  to.manager.empty_output_buffer = [](j_compress_ptr c) -> boolean {
    destination(c).out->resize(destination(c).out->capacity());
    offer(c);
    return TRUE;
  };
  to.manager.term_destination = [](j_compress_ptr c) {
    auto& [manager, blob] = destination(c);
    blob->resize(blob->capacity() - manager.free_in_buffer);
  };
  info.dest = &to.manager;
}

bool begins_with(const jpeg_marker_struct& marker, const char* text, std::size_t size) noexcept {
  return marker.data_length >= size && std::memcmp(marker.data, text, size) == 0;
}

/// Whether a segment is of no use beside other pixels: libjpeg writes its own, or it names
/// places in the file.
bool belongs_to_the_pixels(const jpeg_marker_struct& marker) noexcept {
  if (marker.marker == JPEG_APP0) return true;  // JFIF
  if (marker.marker == JPEG_APP0 + 14) return begins_with(marker, "Adobe", 5);
  return marker.marker == JPEG_APP0 + 2 && begins_with(marker, "MPF", 4);
}

void keep_segments(jpeg_decompress_struct& info) noexcept {
  jpeg_save_markers(&info, JPEG_COM, longest_segment);
  for (int i = 0; i < 16; ++i) jpeg_save_markers(&info, JPEG_APP0 + i, longest_segment);
}

/// Whether one scan holds all components: an MCU has its limits.
bool fits_one_scan(const jpeg_decompress_struct& info) noexcept {
  if (info.num_components == 1) return true;
  int blocks = 0;
  for (int i = 0; i < info.num_components; ++i) {
    blocks += info.comp_info[i].h_samp_factor * info.comp_info[i].v_samp_factor;
  }
  return blocks <= most_mcu_blocks;
}

}  // namespace

class JpegWriter::Handle : JpegEscape {
 public:
  Handle() noexcept {
    report_to(common(in_), in_errors_, *this);
    report_to(common(out_), out_errors_, *this);
    progress_.progress_monitor = [](j_common_ptr c) {
      auto* self = static_cast<Handle*>(static_cast<JpegEscape*>(c->client_data));
      self->watch();
    };
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Status run_rewrite(Bytes file, std::uint32_t restart_interval, Blob& out) noexcept {
    in_.mem = nullptr;
    out_.mem = nullptr;
    if (setjmp(back) == 0) outcome = rewrite(file, restart_interval, out);
    return destroyed();
  }

  Status run_encode(const Picture& pixels, const JpegStyle& style, Bytes original,
                    Blob& out) noexcept {
    in_.mem = nullptr;
    out_.mem = nullptr;
    if (setjmp(back) == 0) outcome = encode(pixels, style, original, out);
    return destroyed();
  }

 private:
  Status destroyed() noexcept {
    jpeg_destroy_compress(&out_);
    jpeg_destroy_decompress(&in_);
    return outcome;
  }

  /// Called by jpeg_read_coefficients at every step, the first time when the scan has begun.
  void watch() noexcept {
    if (in_.input_scan_number > most_jpeg_scans) leave(common(in_), Status::corrupt);
    if (scan_begun_) return;
    scan_begun_ = true;
    if (entropy_in_use() == Entropy::fastio) use_own_entropy_decoder(in_, huffman_);
  }

  void open(Bytes file) noexcept {
    jpeg_create_decompress(&in_);
    read_from(in_, source_, file);
    in_.progress = &progress_;
    scan_begun_ = false;
    keep_segments(in_);
    jpeg_read_header(&in_, TRUE);
  }

  [[nodiscard]] Status rewrite(Bytes file, std::uint32_t restart_interval, Blob& out) noexcept {
    open(file);
    const bool known = in_.num_components == 1 || in_.num_components == 3;
    if (!known || in_.data_precision != 8 || !fits_one_scan(in_)) return Status::unsupported;
    if (asks_too_much(in_, file.size())) return Status::truncated;
    jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&in_);
    if (!is_complete(in_) || source_.bytes_in_buffer > 0) return Status::unsupported;
    jpeg_create_compress(&out_);
    write_to(out_, destination_, out);
    if (!out.reserve(out.size() + file.size() + file.size() / 8)) return Status::no_memory;
    jpeg_copy_critical_parameters(&in_, &out_);
    out_.optimize_coding = TRUE;
    out_.restart_interval = restart_interval;
    out_.write_JFIF_header = FALSE;  // they are among the segments
    out_.write_Adobe_marker = FALSE;
    jpeg_write_coefficients(&out_, coefficients);
    for (auto* each = in_.marker_list; each != nullptr; each = each->next) write(*each);
    jpeg_finish_compress(&out_);
    jpeg_finish_decompress(&in_);
    return Status::ok;
  }

  [[nodiscard]] Status encode(const Picture& pixels, const JpegStyle& style, Bytes original,
                              Blob& out) noexcept {
    const bool from_jpeg = original.size() > 2 && original[0] == 0xFF && original[1] == 0xD8;
    if (from_jpeg) open(original);
    jpeg_create_compress(&out_);
    write_to(out_, destination_, out);
    set_style(pixels, style);
    if (from_jpeg && in_.saw_JFIF_marker != 0) {
      out_.density_unit = in_.density_unit;
      out_.X_density = in_.X_density;
      out_.Y_density = in_.Y_density;
    }
    jpeg_start_compress(&out_, TRUE);
    for (auto* each = from_jpeg ? in_.marker_list : nullptr; each != nullptr; each = each->next) {
      if (!belongs_to_the_pixels(*each)) write(*each);
    }
    while (out_.next_scanline < out_.image_height) {
      JSAMPROW row = pixels.row(out_.next_scanline);
      jpeg_write_scanlines(&out_, &row, 1);
    }
    jpeg_finish_compress(&out_);
    return Status::ok;
  }

  void set_style(const Picture& pixels, const JpegStyle& style) noexcept {
    out_.image_width = static_cast<JDIMENSION>(pixels.width);
    out_.image_height = static_cast<JDIMENSION>(pixels.height);
    out_.input_components = pixels.channels;
    out_.in_color_space = pixels.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&out_);
    jpeg_set_quality(&out_, style.quality, TRUE);
    out_.comp_info[0].h_samp_factor = style.subsampling == Subsampling::s444 ? 1 : 2;
    out_.comp_info[0].v_samp_factor = style.subsampling == Subsampling::s420 ? 2 : 1;
    if (pixels.channels == 1) out_.comp_info[0].h_samp_factor = out_.comp_info[0].v_samp_factor = 1;
    out_.optimize_coding = TRUE;
    out_.restart_interval = style.restart_interval;
  }

  void write(const jpeg_marker_struct& segment) noexcept {
    jpeg_write_marker(&out_, segment.marker, segment.data, segment.data_length);
  }

  HuffmanDecoder huffman_;
  jpeg_decompress_struct in_{};
  jpeg_compress_struct out_{};
  jpeg_error_mgr in_errors_{};
  jpeg_error_mgr out_errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  BlobDestination destination_{};
  bool scan_begun_ = false;
};

JpegWriter::JpegWriter() noexcept = default;
JpegWriter::~JpegWriter() = default;

Status JpegWriter::rewrite(Bytes file, std::uint32_t restart_interval, Blob& out) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle);
  if (!handle_) return Status::no_memory;
  return handle_->run_rewrite(file, restart_interval, out);
}

Status JpegWriter::encode(const Picture& pixels, const JpegStyle& style, Bytes original,
                          Blob& out) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle);
  if (!handle_) return Status::no_memory;
  return handle_->run_encode(pixels, style, original, out);
}

}  // namespace fastio
