#include "pictures/transcode.h"

#include <algorithm>
#include <utility>

#include "jpeg/jump_table.h"
#include "pictures/decode.h"
#include "pictures/probe.h"
#include "pictures/worker.h"

namespace fastio {
namespace {

struct Size {
  std::int32_t height, width;
};

/// The size within the bound, as torchvision's Resize computes it: never larger; or the exact one.
Size bounded(const Size& size, const TranscodeOptions& options) noexcept {
  if (options.bound == Bound::exact) return {options.side, options.width};
  const std::int64_t small = std::min(size.height, size.width);
  const std::int64_t large = std::max(size.height, size.width);
  const std::int64_t side = options.side;
  if (side >= (options.bound == Bound::short_side ? small : large)) return size;
  const bool by_short = options.bound == Bound::short_side;
  const auto new_small = std::max<std::int64_t>(1, by_short ? side : side * small / large);
  const auto new_large = by_short ? side * large / small : side;
  const auto first = static_cast<std::int32_t>(new_small);
  const auto second = static_cast<std::int32_t>(new_large);
  return size.height <= size.width ? Size{first, second} : Size{second, first};
}

/// Whether a PNG has what a JPEG cannot hold, or not without a word. A header that is damaged
/// is for the decoder to judge.
bool is_rich(Bytes file, const PngHeader& header) noexcept {
  if (header.depth == 16) return true;
  if (header.color == PngColor::grey_alpha || header.color == PngColor::rgba) return true;
  return has_png_chunk(file, "tRNS") || has_png_chunk(file, "iCCP") ||
         has_png_chunk(file, "eXIf") || has_png_chunk(file, "acTL");
}

class TranscodeTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.transcode"; }

  TranscodeTask(std::unique_ptr<Bytes[]> spans, const TranscodeOptions& options,
                std::shared_ptr<TranscodedBatch> out) noexcept
      : spans_(std::move(spans)), options_(options), out_(std::move(out)) {}

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      Transcoded& out = out_->pictures[i];
      out.status = transcode(worker, spans_[i], out);
      if (out.status != Status::ok) out.bytes.resize(0);
      out_->done.fetch_add(1, std::memory_order_release);
    }
  }

 private:
  [[nodiscard]] Status transcode(Worker& worker, Bytes file, Transcoded& out) const noexcept {
    const ImageInfo info = probe_image(file);
    // Its shape stays 0: Pillow has read its header.
    if (info.status == Status::unsupported) return keep(file, Outcome::other, out);
    if (info.status != Status::ok) return info.status;
    out.shape[0] = info.height;
    out.shape[1] = info.width;
    out.shape[2] = info.channels;
    if (info.kind != ImageKind::jpeg && info.kind != ImageKind::png) {
      return keep(file, Outcome::other, out);
    }
    const Size old_size{info.height, info.width};
    const Size size = options_.bound == Bound::none ? old_size : bounded(old_size, options_);
    if (size.height != info.height || size.width != info.width) {
      if (options_.bound == Bound::exact && info.kind != ImageKind::jpeg) {
        return keep(file, Outcome::other, out);
      }
      return resize(worker, file, info, size, out);
    }
    const std::uint32_t interval = options_.restart_interval;
    if (interval == 0) return keep(file, Outcome::fitting, out);
    if (info.kind != ImageKind::jpeg) return keep(file, Outcome::other, out);
    const Status status = worker.jpeg_writer.rewrite(file, interval, out.bytes);
    const bool lacks_end = status == Status::truncated && worker.jpeg.lacks_only_end(file);
    if (status == Status::unsupported || lacks_end) return keep(file, Outcome::unusual, out);
    out.outcome = Outcome::rewritten;
    return status == Status::ok ? finished(out, interval) : status;
  }

  [[nodiscard]] Status resize(Worker& worker, Bytes file, const ImageInfo& info, const Size& size,
                              Transcoded& out) const noexcept {
    PngHeader header;
    const bool is_png = info.kind == ImageKind::png;
    if (is_png) {
      const Status status = read_png_header(file, header);
      if (status != Status::ok) return status;
      if (is_rich(file, header)) return keep(file, Outcome::rich, out);
    }
    if (info.channels == 4) return keep(file, Outcome::unusual, out);
    Picture picture{nullptr, static_cast<std::size_t>(size.height),
                    static_cast<std::size_t>(size.width), info.channels};
    Status status = resized(worker, file, info, picture);
    if (status == Status::ok) {
      status = worker.jpeg_writer.encode(picture, options_.style, file, out.bytes);
    }
    if (status == Status::unsupported) return keep(file, Outcome::unusual, out);
    out.outcome = Outcome::resized;
    out.shape[0] = size.height;
    out.shape[1] = size.width;
    return status == Status::ok ? finished(out, options_.style.restart_interval) : status;
  }

  /// The pixels of the smaller picture, in memory of the worker's.
  [[nodiscard]] static Status resized(Worker& worker, Bytes file, const ImageInfo& info,
                                      Picture& picture) noexcept {
    const auto width = static_cast<std::int32_t>(picture.width);
    const auto height = static_cast<std::int32_t>(picture.height);
    const Plan plan{0, 0, info.width, info.height, width, height, 0, 0, width, height, 0, 0, 0};
    if (plan_fault(plan, picture.height, picture.width) != nullptr) return Status::unsupported;
    const TransformOptions options{Filter::bilinear, {}, false, false, false};
    if (!worker.transformer.begin(plan, options, 1)) return Status::no_memory;
    const PicturePart part{box_of(plan), worker.transformer.region(), picture.channels, 1, {}};
    PixelView pixels{};
    const Status status = decode_part(worker, file, part, /*verify_data=*/true, pixels);
    if (status != Status::ok) return status;
    picture.data = worker.resized.reserve(picture.height * picture.row_bytes());
    if (picture.data == nullptr) return Status::no_memory;
    const bool done = worker.transformer.finish(pixels, picture.channels, picture);
    return done ? Status::ok : Status::no_memory;
  }

  [[nodiscard]] static Status keep(Bytes file, Outcome why, Transcoded& out) noexcept {
    out.outcome = why;
    out.bytes.resize(0);
    return out.bytes.append(file.data(), file.size()) ? Status::ok : Status::no_memory;
  }

  /// The status of a JPEG that has been written with this restart interval: its places are noted.
  [[nodiscard]] static Status finished(Transcoded& out, std::uint32_t interval) noexcept {
    if (interval == 0) return Status::ok;
    return find_intervals(out.bytes.bytes(), out.intervals) ? Status::ok : Status::no_memory;
  }

  const std::unique_ptr<Bytes[]> spans_;
  const TranscodeOptions options_;
  const std::shared_ptr<TranscodedBatch> out_;
};

}  // namespace

std::unique_ptr<Task> transcode_task(std::unique_ptr<Bytes[]> spans,
                                     const TranscodeOptions& options,
                                     std::shared_ptr<TranscodedBatch> out) noexcept {
  return std::make_unique<TranscodeTask>(std::move(spans), options, std::move(out));
}

}  // namespace fastio
