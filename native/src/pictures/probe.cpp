#include "pictures/probe.h"

#include <limits>
#include <utility>

#include "png/chunks.h"

namespace fastio {
namespace {

Size probe_size(Bytes file, ImageKind kind) noexcept {
  if (const PictureKind* const row = native_kind(kind)) return row->probe(file);
  if (kind != ImageKind::unknown) return {Status::unsupported, 0, 0, 0};
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

std::unique_ptr<Task> probe_task(std::unique_ptr<Bytes[]> spans, bool verify,
                                 std::int32_t* out) noexcept {
  return std::make_unique<ProbeTask>(std::move(spans), verify, out);
}

bool may_break_off(Bytes file, ImageKind kind) noexcept {
  const PictureKind* const row = native_kind(kind);
  return row != nullptr && row->breaks_off != nullptr && row->breaks_off(file);
}

}  // namespace fastio
