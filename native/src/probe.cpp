#include "fastio/probe.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "fastio/picture_end.h"
#include "fastio/png_chunks.h"
#include "probe_headers.h"

namespace fastio {
namespace {

bool begins(Bytes file, std::size_t at, const char* text, std::size_t size) noexcept {
  return file.size() >= at + size && std::memcmp(file.data() + at, text, size) == 0;
}

Size probe_png(Bytes file) noexcept {
  PngHeader header;
  const Status status = read_png_header(file, header);
  if (status != Status::ok) return {status, 0, 0, 0};
  const int channels = header.color == PngColor::palette ? 3 : header.samples();
  return {Status::ok, header.height, header.width, channels};
}

Size probe_size(Bytes file, ImageKind kind) noexcept {
  switch (kind) {
    case ImageKind::jpeg: {
      std::uint32_t marker = 0;
      return probe_jpeg(file, marker);
    }
    case ImageKind::png: return probe_png(file);
    case ImageKind::gif: return probe_gif(file);
    case ImageKind::bmp: return probe_bmp(file);
    case ImageKind::webp: return probe_webp(file);
    case ImageKind::tiff: return probe_tiff(file);
    case ImageKind::pnm: return probe_pnm(file);
    case ImageKind::unknown: break;
  }
  return {file.size() < signature_bytes ? Status::truncated : Status::not_image, 0, 0, 0};
}

class ProbeTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.probe"; }

  ProbeTask(std::unique_ptr<Bytes[]> spans, bool verify, std::int32_t* out) noexcept
      : spans_(std::move(spans)), verify_(verify), out_(out) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      const ImageInfo info = probe_image(spans_[i]);
      std::int32_t* row = out_ + 5 * i;
      row[0] = static_cast<std::int32_t>(checked(info, spans_[i]));
      row[1] = info.height;
      row[2] = info.width;
      row[3] = info.channels;
      row[4] = static_cast<std::int32_t>(info.kind);
    }
  }

 private:
  [[nodiscard]] Status checked(const ImageInfo& info, Bytes file) const noexcept {
    if (!verify_ || info.status != Status::ok) return info.status;
    if (info.kind == ImageKind::png) {
      const Status status = check_png_chunks(file);
      return status == Status::corrupt ? Status::truncated : status;  // decoding says which
    }
    return may_break_off(file, info.kind) ? Status::truncated : Status::ok;
  }

  const std::unique_ptr<Bytes[]> spans_;
  const bool verify_;
  std::int32_t* const out_;
};

}  // namespace

ImageKind image_kind(Bytes file) noexcept {
  if (begins(file, 0, "\xFF\xD8\xFF", 3)) return ImageKind::jpeg;
  if (begins(file, 0, "\x89PNG\r\n\x1A\n", 8)) return ImageKind::png;
  if (begins(file, 0, "GIF87a", 6) || begins(file, 0, "GIF89a", 6)) return ImageKind::gif;
  if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WEBP", 4)) return ImageKind::webp;
  if (begins(file, 0, "II*\0", 4) || begins(file, 0, "MM\0*", 4)) return ImageKind::tiff;
  if (is_bmp(file)) return ImageKind::bmp;
  if (is_pnm(file)) return ImageKind::pnm;
  return ImageKind::unknown;
}

ImageInfo probe_image(Bytes file) noexcept {
  const ImageKind kind = image_kind(file);
  const Size size = probe_size(file, kind);
  if (size.status != Status::ok) return {size.status, 0, 0, 0, kind};
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
  const bool positive = size.height > 0 && size.width > 0;
  if (!positive || size.height > largest || size.width > largest) {
    return {Status::corrupt, 0, 0, 0, kind};
  }
  return {Status::ok, static_cast<std::int32_t>(size.height), static_cast<std::int32_t>(size.width),
          size.channels, kind};
}

bool read_jpeg_frame(Bytes file, JpegFrame& frame) noexcept {
  if (image_kind(file) != ImageKind::jpeg) return false;
  std::uint32_t marker = 0;
  const Size size = probe_jpeg(file, marker);
  if (size.status != Status::ok) return false;
  frame = {marker % 4 == 2, size.channels};  // C2, C6, CA, CE
  return true;
}

std::unique_ptr<Task> probe_task(std::unique_ptr<Bytes[]> spans, bool verify,
                                 std::int32_t* out) noexcept {
  return std::make_unique<ProbeTask>(std::move(spans), verify, out);
}

}  // namespace fastio
