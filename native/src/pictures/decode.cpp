#include "pictures/decode.h"

#include <utility>

#include "core/checksum.h"
#include "pictures/probe.h"
#include "pictures/worker.h"

namespace fastio {

namespace {

/// Of a file without a native decoder.
Status undecoded(Bytes file, ImageKind kind) noexcept {
  if (kind != ImageKind::unknown) return Status::unsupported;
  return file.size() < signature_bytes ? Status::truncated : Status::not_image;
}

/// All of a picture.
Status decode_whole(RegionDecoder& decoder, Bytes file, const Picture& out) noexcept {
  const Status status = decoder.open(file);
  if (status != Status::ok) return status;
  if (decoder.height() != out.height || decoder.width() != out.width) return Status::bad_shape;
  return decoder.decode({0, 0, out.width, out.height}, out);
}

/// A region and nothing else.
Status decode_region(RegionDecoder& decoder, Scratch& memory, Bytes file, const PicturePart& part,
                     PixelView& pixels) noexcept {
  const Status status = decoder.open(file);
  if (status != Status::ok) return status;
  if (decoder.width() * decoder.height() > part.max_pixels) return Status::too_large;
  if (!part.box.is_inside(decoder.width(), decoder.height())) return Status::bad_shape;
  Picture picture{nullptr, part.region.height, part.region.width, part.channels};
  picture.data = memory.reserve(picture.height * picture.row_bytes() + Resizer::slack);
  if (picture.data == nullptr) return Status::no_memory;
  pixels = {picture.data, picture.row_bytes()};
  return decoder.decode(part.region, picture);
}

}  // namespace

Status decode_picture(Worker& worker, Bytes file, const Picture& out, bool verify_data,
                      const Intervals& intervals) noexcept {
  const ImageKind kind = image_kind(file);
  if (kind == ImageKind::jpeg) return worker.jpeg.decode(file, out, intervals);
  if (kind == ImageKind::png) return worker.png.decode(file, out, verify_data);
  RegionDecoder* const decoder = worker.regions.of(kind);
  return decoder != nullptr ? decode_whole(*decoder, file, out) : undecoded(file, kind);
}

namespace {

/// The whole picture, for every row needs those above it, and the part of it.
Status decode_png_part(Worker& worker, Bytes file, const PicturePart& part, bool verify_data,
                       PixelView& pixels) noexcept {
  PngHeader header;
  const Status status = read_png_header(file, header);
  if (status != Status::ok) return status;
  if (std::size_t{header.width} * header.height > part.max_pixels) return Status::too_large;
  if (!part.box.is_inside(header.width, header.height)) return Status::bad_shape;
  if (header.height * header.row_bytes(header.width) / most_inflated > file.size()) {
    return Status::truncated;
  }
  Picture picture{nullptr, header.height, header.width, part.channels};
  picture.data = worker.picture.reserve(picture.height * picture.row_bytes() + Resizer::slack);
  if (picture.data == nullptr) return Status::no_memory;
  const auto channels = static_cast<std::size_t>(part.channels);
  pixels = {picture.row(part.region.y) + part.region.x * channels, picture.row_bytes()};
  return worker.png.decode(file, picture, verify_data);
}

}  // namespace

Status decode_part(Worker& worker, Bytes file, const PicturePart& part, bool verify_data,
                   PixelView& pixels) noexcept {
  const ImageKind kind = image_kind(file);
  if (kind == ImageKind::jpeg) return worker.jpeg.decode_part(file, part, pixels);
  if (kind == ImageKind::png) return decode_png_part(worker, file, part, verify_data, pixels);
  RegionDecoder* const decoder = worker.regions.of(kind);
  if (decoder == nullptr) return undecoded(file, kind);
  return decode_region(*decoder, worker.picture, file, part, pixels);
}

namespace {

class DecodeTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.decode"; }

  DecodeTask(std::unique_ptr<Bytes[]> spans, std::unique_ptr<Bytes[]> intervals,
             const Pictures& pictures) noexcept
      : spans_(std::move(spans)), intervals_(std::move(intervals)), pictures_(pictures) {}

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      pictures_.status[i] = static_cast<std::int32_t>(decode(worker, i));
    }
  }

 private:
  [[nodiscard]] Status decode(Worker& worker, std::size_t i) const noexcept {
    const bool checked = pictures_.checksums != nullptr;
    if (checked && crc32(spans_[i]) != pictures_.checksums[i]) return Status::bad_checksum;
    Picture out = pictures_.first;
    out.data += i * out.height * out.row_bytes();
    const Intervals intervals = intervals_ ? Intervals(intervals_[i]) : Intervals();
    return or_pillow(decode_picture(worker, spans_[i], out, !checked, intervals));
  }

  const std::unique_ptr<Bytes[]> spans_;
  const std::unique_ptr<Bytes[]> intervals_;  // nullptr: not known
  const Pictures pictures_;
};

}  // namespace

std::unique_ptr<Task> decode_task(std::unique_ptr<Bytes[]> spans,
                                  std::unique_ptr<Bytes[]> intervals,
                                  const Pictures& pictures) noexcept {
  return std::make_unique<DecodeTask>(std::move(spans), std::move(intervals), pictures);
}

}  // namespace fastio
