#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "pictures/kinds.h"

#if defined(FASTIO_WEBP)
#include <webp/decode.h>
#include <webp/demux.h>
#endif

namespace fastio {

#if defined(FASTIO_WEBP)

namespace {

struct FreeDemuxer {
  void operator()(WebPDemuxer* demuxer) const noexcept { WebPDemuxDelete(demuxer); }
};

/// Lets go of what libwebp found when it goes out of scope.
struct Frame : WebPIterator {
  Frame() noexcept : WebPIterator{} {}
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { WebPDemuxReleaseIterator(this); }
};

Status status_of(VP8StatusCode code) noexcept {
  switch (code) {
    case VP8_STATUS_OK: return Status::ok;
    case VP8_STATUS_OUT_OF_MEMORY: return Status::no_memory;
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED: return Status::truncated;
    case VP8_STATUS_UNSUPPORTED_FEATURE:
    case VP8_STATUS_INVALID_PARAM: return Status::unsupported;
    default: return Status::corrupt;
  }
}

/// The region that has to be decoded for the wanted one to have the pixels of the whole picture:
/// smooth upsampling of colours looks at neighbours, and starts at even places.
Region with_margin(const Region& region, std::size_t width, std::size_t height) noexcept {
  constexpr std::size_t margin = 2;
  const std::size_t x = (region.x - std::min(region.x, margin)) / 2 * 2;
  const std::size_t y = (region.y - std::min(region.y, margin)) / 2 * 2;
  return {x, y, std::min(region.x + region.width + margin, width) - x,
          std::min(region.y + region.height + margin, height) - y};
}

void copy_rows(const Picture& from, const Region& region, const Picture& out) noexcept {
  const auto channels = static_cast<std::size_t>(from.channels);
  for (std::size_t y = 0; y < out.height; ++y) {
    const std::uint8_t* row = from.row(region.y + y) + region.x * channels;
    if (out.channels == 1) {
      rgb_to_grey(row, out.row(y), out.width);
    } else {
      std::memcpy(out.row(y), row, out.row_bytes());
    }
  }
}

/// Still pictures, lossy and lossless, with alpha or without.
class WebpDecoder final : public RegionDecoder {
 public:
  /// As Pillow, it wants the whole file to be well formed; `unsupported` for animations.
  [[nodiscard]] Status open(Bytes file) noexcept override;

  [[nodiscard]] std::size_t width() const noexcept override { return width_; }
  [[nodiscard]] std::size_t height() const noexcept override { return height_; }

  /// Damage behind the last row needed is not looked at (the checksum of the file sees it).
  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept override;

 private:
  [[nodiscard]] Status decode_into(const Region& region, const Picture& out) const noexcept;

  Bytes stream_;  // the frame's chunks
  std::size_t width_ = 0;
  std::size_t height_ = 0;
  bool has_lossy_colours_and_alpha_ = false;
  Scratch memory_;  // a region that is larger than the one wanted, or is to become grey
};

std::unique_ptr<RegionDecoder> make_decoder() {
  return std::make_unique<WebpDecoder>();
}

}  // namespace

const char* webp_version() noexcept {
  static const std::string text = [] {
    const int version = WebPGetDecoderVersion();
    return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) + "." +
           std::to_string(version & 255);
  }();
  return text.c_str();
}

Status WebpDecoder::open(Bytes file) noexcept {
  const WebPData data{file.data(), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const std::unique_ptr<WebPDemuxer, FreeDemuxer> demuxer(WebPDemuxPartial(&data, &state));
  if (state != WEBP_DEMUX_DONE) {
    return state == WEBP_DEMUX_PARSE_ERROR ? Status::corrupt : Status::truncated;
  }
  if (!demuxer) return Status::no_memory;
  const std::uint32_t flags = WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS);
  if ((flags & ANIMATION_FLAG) != 0) return Status::unsupported;
  Frame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) return Status::corrupt;
  width_ = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  height_ = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  const bool fills_canvas = frame.x_offset == 0 && frame.y_offset == 0 &&
                            static_cast<std::size_t>(frame.width) == width_ &&
                            static_cast<std::size_t>(frame.height) == height_;
  // Of headers that contradict each other, versions of libwebp take different ones.
  const bool agrees = ((flags & ALPHA_FLAG) != 0) == (frame.has_alpha != 0);
  if (!fills_canvas || !agrees || frame.num_frames != 1) return Status::unsupported;
  stream_ = {frame.fragment.bytes, frame.fragment.size};
  WebPBitstreamFeatures features;
  const VP8StatusCode code = WebPGetFeatures(stream_.data(), stream_.size(), &features);
  if (code != VP8_STATUS_OK) return status_of(code);
  constexpr int lossy = 1;
  has_lossy_colours_and_alpha_ = features.format == lossy && features.has_alpha != 0;
  return Status::ok;
}

Status WebpDecoder::decode_into(const Region& region, const Picture& out) const noexcept {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return Status::unsupported;
  const bool is_whole = region.width == width_ && region.height == height_;
  config.options.use_cropping = is_whole ? 0 : 1;
  config.options.crop_left = static_cast<int>(region.x);
  config.options.crop_top = static_cast<int>(region.y);
  config.options.crop_width = static_cast<int>(region.width);
  config.options.crop_height = static_cast<int>(region.height);
  config.output.colorspace = out.channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = out.data;
  config.output.u.RGBA.stride = static_cast<int>(out.row_bytes());
  config.output.u.RGBA.size = out.height * out.row_bytes();
  return status_of(WebPDecode(stream_.data(), stream_.size(), &config));
}

Status WebpDecoder::decode(const Region& region, const Picture& out) noexcept {
  if (!region.is_inside(width_, height_)) return Status::bad_shape;
  // Where colours are lossy, libwebp crops the separate plane of alpha wrongly (1.2.4: in one of
  // ten random regions).
  const Region decoded = has_lossy_colours_and_alpha_ && out.channels == 4
                             ? Region{0, 0, width_, height_}
                             : with_margin(region, width_, height_);
  const bool is_same = decoded.width == region.width && decoded.height == region.height;
  Picture picture = out;
  if (!is_same || out.channels == 1) {
    picture = {nullptr, decoded.height, decoded.width, out.channels == 4 ? 4 : 3};
    picture.data = memory_.reserve(picture.height * picture.row_bytes());
    if (picture.data == nullptr) return Status::no_memory;
  }
  const Status status = decode_into(decoded, picture);
  if (status == Status::ok && picture.data != out.data) {
    copy_rows(picture, {region.x - decoded.x, region.y - decoded.y, region.width, region.height},
              out);
  }
  return status;
}

#else

const char* webp_version() noexcept {
  return nullptr;
}

namespace {

constexpr std::unique_ptr<RegionDecoder> (*make_decoder)() = nullptr;

}  // namespace

#endif

namespace {

bool is_webp(Bytes file) noexcept {
  return has_text(file, 0, "RIFF") && has_text(file, 8, "WEBP");
}

Size probe_webp(Bytes file) noexcept {
  const Reader read(file, true);
  if (!read.has(12, 18)) return truncated_size;
  const char* kind = reinterpret_cast<const char*>(file.data()) + 12;
  if (std::memcmp(kind, "VP8X", 4) == 0) {
    const bool alpha = (read.u8(20) & 0x10) != 0;
    return {Status::ok, read.u24(27) + 1, read.u24(24) + 1, alpha ? 4 : 3};
  }
  if (std::memcmp(kind, "VP8L", 4) == 0) {
    const std::uint32_t bits = read.u32(21);
    if (read.u8(20) != 0x2F) return corrupt_size;
    const bool alpha = (bits >> 28 & 1) != 0;
    return {Status::ok, (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, alpha ? 4 : 3};
  }
  if (std::memcmp(kind, "VP8 ", 4) != 0) return corrupt_size;
  if (read.u24(23) != 0x2A019D) return corrupt_size;  // the start code of a key frame
  return {Status::ok, read.u16(28) & 0x3FFF, read.u16(26) & 0x3FFF, 3};
}

bool webp_breaks_off(Bytes file) noexcept {
  constexpr std::size_t riff_header = 8;  // which the size behind RIFF leaves out
  return Reader(file, true).u32(4) + riff_header > file.size();
}

}  // namespace

const PictureKind webp_kind{"WebP", "webp", is_webp, probe_webp, webp_breaks_off, make_decoder};

}  // namespace fastio
