#include "fastio/decode.h"

#include <utility>

#include "fastio/crc32.h"
#include "fastio/probe.h"
#include "fastio/worker.h"

namespace fastio {

Status decode_picture(Worker& worker, Bytes file, const Picture& out, bool verify_crc) noexcept {
  switch (image_kind(file)) {
    case ImageKind::jpeg: return worker.jpeg.decode(file, out);
    case ImageKind::png: return worker.png.decode(file, out, verify_crc);
    case ImageKind::unknown:
      return file.size() < signature_bytes ? Status::truncated : Status::not_image;
    default: return Status::unsupported;
  }
}

namespace {

class DecodeTask final : public Task {
 public:
  DecodeTask(std::unique_ptr<Bytes[]> spans, const Pictures& pictures) noexcept
      : spans_(std::move(spans)), pictures_(pictures) {}

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
    return decode_picture(worker, spans_[i], out, !checked);
  }

  const std::unique_ptr<Bytes[]> spans_;
  const Pictures pictures_;
};

}  // namespace

std::unique_ptr<Task> decode_task(std::unique_ptr<Bytes[]> spans,
                                  const Pictures& pictures) noexcept {
  return std::make_unique<DecodeTask>(std::move(spans), pictures);
}

}  // namespace fastio
