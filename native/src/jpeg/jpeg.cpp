#include "jpeg/jpeg.h"

#include <algorithm>
#include <array>
#include <new>
#include <tuple>

#include "jpeg/callbacks.h"
#include "jpeg/cmyk.h"
#include "jpeg/pipeline.h"
#include "pictures/probe.h"

namespace fastio {

class JpegDecoder::Handle : JpegEscape {
 public:
  explicit Handle(Entropy entropy) noexcept : entropy_(entropy) {
    report_to(common(info_), errors_, *this);
    progress_.progress_monitor = [](j_common_ptr c) {
      if (reinterpret_cast<j_decompress_ptr>(c)->input_scan_number > most_jpeg_scans) {
        leave(c, Status::corrupt);
      }
      ProgressiveScans::watch(*reinterpret_cast<j_decompress_ptr>(c));
    };
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Status run(Bytes file, const Picture& out, const Intervals& intervals, Scratch& row) noexcept;
  Status run_part(Bytes file, const PicturePart& part, Scratch& memory, PixelView& view) noexcept;
  void note_points(std::span<const Bytes> files, std::size_t spacing, NotedPoints* noted) noexcept;
  bool lacks_only_end(Bytes file) noexcept;
  bool find_damage(Bytes file, DamagePlace& place) noexcept;

 private:
  [[nodiscard]] Status decode(Bytes file, const Picture& out, Scratch& row) noexcept;
  [[nodiscard]] Status decode_part(Bytes file, const PicturePart& part, Scratch& memory,
                                   PixelView& view) noexcept;
  [[nodiscard]] Status begin_walk(Bytes file, std::size_t spacing, ScanWalker& walker) noexcept;
  template <typename Attempt>
  [[nodiscard]] Status attempt(Bytes file, const Intervals& intervals,
                               const Attempt& decode) noexcept;
  template <typename Attempt>
  void attempt_once(const Attempt& decode) noexcept;
  void open(Bytes file) noexcept;
  [[nodiscard]] Status start(int channels,
                             std::size_t bottom = ProgressiveScans::all_rows) noexcept;
  void read_rows(const Picture& out) noexcept;
  void read_converted_rows(const Picture& out, std::uint8_t* row) noexcept;
  /// Whether the rows that libjpeg gives are not yet those wanted.
  [[nodiscard]] bool converts() const noexcept { return to_rgb_ != nullptr || to_grey_; }
  void convert_row(std::uint8_t* row, std::uint8_t* out) const noexcept;

  const Entropy entropy_;
  HuffmanDecoder huffman_;
  std::unique_ptr<ScanWalkers> walkers_;  // made with the first files to note points of
  ScanHints hints_;
  bool relies_on_points_ = false;
  ProgressiveScans scans_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  CmykRow to_rgb_ = nullptr;  ///< of a picture with four components
  bool to_grey_ = false;      ///< by luma
};

void JpegDecoder::Handle::open(Bytes file) noexcept {
  jpeg_create_decompress(&info_);
  info_.progress = &progress_;
  read_from(info_, source_, file);
  jpeg_read_header(&info_, TRUE);
}

/// Begins decoding into `channels`; the header has been read. Of a progressive file, rows of the
/// whole picture from `bottom` on are not needed.
Status JpegDecoder::Handle::start(int channels, std::size_t bottom) noexcept {
  const int components = info_.num_components;
  const bool known = components == 1 || components == 3 || components == 4;
  const bool wanted = channels == 1 || channels == 3 || channels == 4;
  if (!known || !wanted || info_.data_precision != 8) return Status::unsupported;
  to_rgb_ = nullptr;
  to_grey_ = channels == 1 && components != 1;
  if (components == 4) {
    const CmykSpace inks = info_.jpeg_color_space == JCS_YCCK ? CmykSpace::ycck : CmykSpace::cmyk;
    to_rgb_ = cmyk_row(inks, channels == 4 ? 4 : 3);
    info_.jpeg_color_space = info_.out_color_space = JCS_CMYK;  // unconverted
  } else if (channels == 4) {
    info_.out_color_space = JCS_EXT_RGBA;
  } else {
    info_.out_color_space = components == 1 && channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  }
  info_.dct_method = JDCT_ISLOW;
  info_.do_fancy_upsampling = TRUE;
  if (entropy_ == Entropy::fastio) scans_.attach(info_, bottom);
  jpeg_start_decompress(&info_);  // reads all scans when there are several
  return is_complete(info_) ? Status::ok : Status::unsupported;
}

/// `row` as libjpeg gives it to the pixels wanted, in `out`; `row` is unspecified then, unless
/// it is `out`.
void JpegDecoder::Handle::convert_row(std::uint8_t* row, std::uint8_t* out) const noexcept {
  std::uint8_t* const rgb = to_grey_ ? row : out;
  if (to_rgb_ != nullptr) to_rgb_(row, rgb, info_.output_width);
  if (to_grey_) rgb_to_grey(rgb, out, info_.output_width);
}

void JpegDecoder::Handle::read_rows(const Picture& out) noexcept {
  constexpr JDIMENSION most_rows = 16;
  JSAMPROW rows[most_rows];
  while (info_.output_scanline < info_.output_height) {
    JDIMENSION count = 0;
    for (; count < most_rows && info_.output_scanline + count < info_.output_height; ++count) {
      rows[count] = out.row(info_.output_scanline + count);
    }
    jpeg_read_scanlines(&info_, rows, count);
  }
}

void JpegDecoder::Handle::read_converted_rows(const Picture& out, std::uint8_t* row) noexcept {
  while (info_.output_scanline < info_.output_height) {
    std::uint8_t* pixels = out.row(info_.output_scanline);
    JSAMPROW rows = row;
    if (jpeg_read_scanlines(&info_, &rows, 1) == 1) convert_row(row, pixels);
  }
}

Status JpegDecoder::Handle::decode(Bytes file, const Picture& out, Scratch& row_memory) noexcept {
  open(file);
  if (info_.image_height != out.height || info_.image_width != out.width) return Status::bad_shape;
  const Status started = start(out.channels);
  if (started != Status::ok) return started;
  if (entropy_ == Entropy::fastio) use_own_entropy_decoder(info_, huffman_);
  if (!hints_.places.bytes().empty()) {
    relies_on_points_ = limit_scan(
        info_, {.x = 0, .right = out.width, .y = 0, .bottom = out.height}, hints_, huffman_);
  }
  if (converts()) {
    std::uint8_t* row = row_memory.reserve(4 * out.width);
    if (row == nullptr) return Status::no_memory;
    read_converted_rows(out, row);
  } else {
    read_rows(out);
  }
  jpeg_finish_decompress(&info_);  // reads on to the end marker: a cut behind the pixels is seen
  return Status::ok;
}

Status JpegDecoder::Handle::decode_part(Bytes file, const PicturePart& part, Scratch& memory,
                                        PixelView& view) noexcept {
  open(file);
  if (std::size_t{info_.image_width} * info_.image_height > part.max_pixels)
    return Status::too_large;
  if (!part.box.is_inside(info_.image_width, info_.image_height)) return Status::bad_shape;
  if (jpeg_has_multiple_scans(&info_) != 0 && asks_too_much(info_, file.size()))
    return Status::truncated;
  info_.scale_num = 1;
  info_.scale_denom = static_cast<unsigned>(part.shrink);
  const Status started = start(part.channels, (part.region.y + part.region.height) * part.shrink);
  if (started != Status::ok) return started;
  if (entropy_ == Entropy::fastio) use_own_entropy_decoder(info_, huffman_);
  const Region& region = part.region;
  // Smooth upsampling looks at neighbours; beyond what is decoded there would be none.
  constexpr std::size_t margin = 2;
  auto x = static_cast<JDIMENSION>(region.x - std::min(region.x, margin));
  const std::size_t right =
      std::min<std::size_t>(region.x + region.width + margin, info_.output_width);
  auto width = static_cast<JDIMENSION>(right - x);
  if (width < info_.output_width) jpeg_crop_scanline(&info_, &x, &width);
  const auto y = static_cast<JDIMENSION>(region.y - std::min(region.y, margin));
  const std::size_t last = region.y + region.height;
  relies_on_points_ = limit_scan(info_,
                                 {.x = x * part.shrink,
                                  .right = (x + width) * part.shrink,
                                  .y = y * part.shrink,
                                  .bottom = last * part.shrink},
                                 hints_, huffman_);
  const auto components = static_cast<std::size_t>(info_.output_components);
  const std::size_t row_bytes = info_.output_width * components;
  const bool is_placed = part.target.data != nullptr && row_bytes <= part.target.stride;
  const std::size_t stride = is_placed ? part.target.stride : row_bytes;
  const std::size_t own_rows = (is_placed ? region.y : last) - y;  // in memory of our own
  std::uint8_t* own = memory.reserve(own_rows * stride + Resizer::slack);
  if (own == nullptr) return Status::no_memory;
  std::uint8_t* pixels = is_placed ? part.target.data : own + (region.y - y) * stride;
  if (y > 0) jpeg_skip_scanlines(&info_, y);
  while (info_.output_scanline < last) {
    const std::size_t scanline = info_.output_scanline;
    std::uint8_t* pixel_row = scanline < region.y ? own + (scanline - y) * stride
                                                  : pixels + (scanline - region.y) * stride;
    JSAMPROW row = pixel_row;
    if (jpeg_read_scanlines(&info_, &row, 1) != 1) continue;
    if (converts()) convert_row(pixel_row, pixel_row);
  }
  if (last == info_.output_height) jpeg_finish_decompress(&info_);
  const auto channels = static_cast<std::size_t>(part.channels);
  view = {pixels + (region.x - x) * channels, stride};
  return Status::ok;
}

/// What `decode` comes to, with the help of `intervals`, or without if they may be wrong.
template <typename Attempt>
Status JpegDecoder::Handle::attempt(Bytes file, const Intervals& intervals,
                                    const Attempt& decode) noexcept {
  hints_.places = intervals;
  hints_.file = file;
  attempt_once(decode);
  if (outcome != Status::ok && relies_on_points_) {
    hints_.places = Intervals();
    attempt_once(decode);
  }
  return outcome;
}

template <typename Attempt>
void JpegDecoder::Handle::attempt_once(const Attempt& decode) noexcept {
  // A libjpeg object is never used for a second file: it would keep the first one's tables,
  // and a damaged file without tables of its own would be decoded with them, to garbage.
  info_.mem = nullptr;
  relies_on_points_ = false;
  if (setjmp(back) == 0) outcome = decode();
  jpeg_destroy_decompress(&info_);
}

Status JpegDecoder::Handle::run(Bytes file, const Picture& out, const Intervals& intervals,
                                Scratch& row) noexcept {
  return attempt(file, intervals, [&] { return decode(file, out, row); });
}

Status JpegDecoder::Handle::run_part(Bytes file, const PicturePart& part, Scratch& memory,
                                     PixelView& view) noexcept {
  return attempt(file, part.intervals, [&] { return decode_part(file, part, memory, view); });
}

Status JpegDecoder::Handle::begin_walk(Bytes file, std::size_t spacing,
                                       ScanWalker& walker) noexcept {
  if (image_kind(file) != ImageKind::jpeg) return Status::unsupported;
  info_.mem = nullptr;
  if (setjmp(back) == 0) {
    open(file);
    outcome = Status::unsupported;
    if (jpeg_has_multiple_scans(&info_) == 0) outcome = start(info_.num_components == 1 ? 1 : 3);
    if (outcome == Status::ok) outcome = fastio::begin_walk(info_, file, spacing, walker);
  }
  jpeg_destroy_decompress(&info_);
  return outcome;
}

void JpegDecoder::Handle::note_points(std::span<const Bytes> files, std::size_t spacing,
                                      NotedPoints* noted) noexcept {
  class Files final : public ScanSource {
   public:
    Files(Handle& handle, std::span<const Bytes> files, std::size_t spacing, NotedPoints* noted)
        : handle_(handle), files_(files), spacing_(spacing), noted_(noted) {}

    bool next(std::size_t number) noexcept override {
      while (next_ < files_.size()) {
        Status& status = noted_[next_].status;
        status = handle_.begin_walk(files_[next_], spacing_, (*handle_.walkers_)[number]);
        which_[number] = next_++;
        if (status == Status::ok) return true;
      }
      return false;
    }
    void done(std::size_t number) noexcept override {
      NotedPoints& out = noted_[which_[number]];
      out.status = end_walk((*handle_.walkers_)[number], out.table);
    }

   private:
    Handle& handle_;
    const std::span<const Bytes> files_;
    const std::size_t spacing_;
    NotedPoints* const noted_;
    std::size_t next_ = 0;
    std::array<std::size_t, std::tuple_size_v<ScanWalkers>> which_{};
  };

  if (!walkers_) walkers_.reset(new (std::nothrow) ScanWalkers());
  if (!walkers_) {
    for (std::size_t i = 0; i < files.size(); ++i) noted[i].status = Status::no_memory;
    return;
  }
  Files source(*this, files, spacing, noted);
  walk_scans(*walkers_, source);
}

bool JpegDecoder::Handle::lacks_only_end(Bytes file) noexcept {
  if (entropy_ != Entropy::fastio) return false;
  info_.mem = nullptr;
  outcome = Status::truncated;
  if (setjmp(back) == 0) {
    open(file);
    if (jpeg_has_multiple_scans(&info_) == 0 &&
        start(info_.num_components == 1 ? 1 : 3) == Status::ok) {
      outcome = read_to_end(info_, file, huffman_);
    }
  }
  jpeg_destroy_decompress(&info_);
  return outcome == Status::ok;
}

bool JpegDecoder::Handle::find_damage(Bytes file, DamagePlace& place) noexcept {
  info_.mem = nullptr;
  outcome = Status::unsupported;
  if (setjmp(back) == 0) {
    open(file);
    if (jpeg_has_multiple_scans(&info_) == 0 &&
        start(info_.num_components == 1 ? 1 : 3) == Status::ok) {
      const bool is_found = fastio::find_damage(info_, file, huffman_, place);
      outcome = is_found ? Status::ok : Status::unsupported;
    }
  }
  jpeg_destroy_decompress(&info_);
  return outcome == Status::ok;
}

JpegDecoder::JpegDecoder(Entropy entropy) noexcept : entropy_(entropy) {}
JpegDecoder::~JpegDecoder() = default;

Status JpegDecoder::decode(Bytes file, const Picture& out, const Intervals& intervals) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle(entropy_));
  if (!handle_) return Status::no_memory;
  return judged(handle_->run(file, out, intervals, row_), file);
}

Status JpegDecoder::decode_part(Bytes file, const PicturePart& part, PixelView& view) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle(entropy_));
  if (!handle_) return Status::no_memory;
  return judged(handle_->run_part(file, part, part_, view), file);
}

void JpegDecoder::note_points(std::span<const Bytes> files, std::size_t spacing,
                              NotedPoints* noted) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle(entropy_));
  if (handle_) handle_->note_points(files, spacing, noted);
  for (std::size_t i = 0; i < files.size(); ++i) {
    noted[i].status = handle_ ? judged(noted[i].status, files[i]) : Status::no_memory;
  }
}

bool JpegDecoder::find_damage(Bytes file, DamagePlace& place) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle(entropy_));
  return handle_ && handle_->find_damage(file, place);
}

bool JpegDecoder::lacks_only_end(Bytes file) noexcept {
  if (!handle_) handle_.reset(new (std::nothrow) Handle(entropy_));
  return handle_ && handle_->lacks_only_end(file);
}

/// `status` of a file, but for one that lacks only its end.
Status JpegDecoder::judged(Status status, Bytes file) noexcept {
  const bool is_left = status == Status::truncated && handle_->lacks_only_end(file);
  return is_left ? Status::unsupported : status;
}

}  // namespace fastio
