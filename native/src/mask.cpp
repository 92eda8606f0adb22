#include "fastio/mask.h"

#include <utility>

#include "fastio/crc32.h"
#include "fastio/worker.h"

namespace fastio {

Status read_mask_form(Bytes file, MaskForm& form) noexcept {
  form.kind = image_kind(file);
  switch (form.kind) {
    case ImageKind::png: {
      PngHeader header;
      const Status status = read_png_header(file, header);
      form.height = header.height;
      form.width = header.width;
      form.channels = static_cast<std::size_t>(header.samples());
      form.bits = header.depth;
      return status;
    }
    case ImageKind::jpeg: {
      const ImageInfo info = probe_image(file);
      form.height = static_cast<std::size_t>(info.height);
      form.width = static_cast<std::size_t>(info.width);
      form.channels = static_cast<std::size_t>(info.channels);
      form.bits = 8;
      return info.status;
    }
    case ImageKind::unknown:
      return file.size() < signature_bytes ? Status::truncated : Status::not_image;
    default: return Status::unsupported;
  }
}

namespace {

/// All of a picture, unchanged.
Plan whole(const MaskForm& form) noexcept {
  const auto height = static_cast<std::int32_t>(form.height);
  const auto width = static_cast<std::int32_t>(form.width);
  return {0, 0, width, height, width, height, 0, 0, width, height, 0, 0, 0};
}

class MaskTask final : public Task {
 public:
  explicit MaskTask(MaskBatch batch) noexcept : batch_(std::move(batch)) {}

  [[nodiscard]] const char* what() const noexcept override { return "fastio.decode"; }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      batch_.rows.status[i] = static_cast<std::int32_t>(or_pillow(decode(worker, i)));
    }
  }

 private:
  [[nodiscard]] Status decode(Worker& worker, std::size_t i) const noexcept {
    const MaskRows& rows = batch_.rows;
    const Bytes file = batch_.spans[i];
    if (rows.checksums != nullptr && crc32(file) != rows.checksums[i]) return Status::bad_checksum;
    NumberRow row = rows.first;
    row.data += i * row.bytes();
    if (batch_.plans != nullptr && batch_.plans[i].is_empty()) {
      fill_numbers(rows.fill, row);
      return Status::ok;
    }
    MaskForm form{};
    const Status status = read_mask_form(file, form);
    if (status != Status::ok) return status;
    if (form.width * form.height > batch_.max_pixels) return Status::too_large;
    if (!fits(form, i)) return Status::bad_shape;
    if (!worker.nearest.begin(batch_.plans ? batch_.plans[i] : whole(form))) {
      return Status::no_memory;
    }
    NumberView numbers{};
    const Status decoded = decode_region(worker, file, form, numbers);
    if (decoded == Status::ok) worker.nearest.finish(numbers, rows.fill, row);
    return decoded;
  }

  /// Whether a mask of this form can go into its row.
  [[nodiscard]] bool fits(const MaskForm& form, std::size_t i) const noexcept {
    const NumberRow& row = batch_.rows.first;
    if (form.channels != row.channels) return false;
    if (form.bits > 8 && (row.number_bytes == 1 || form.channels > 1)) return false;
    if (batch_.sizes != nullptr) {
      const MaskSize size = batch_.sizes[i];
      if (std::cmp_not_equal(form.height, size.height)) return false;
      if (std::cmp_not_equal(form.width, size.width)) return false;
    }
    if (batch_.plans != nullptr) return box_of(batch_.plans[i]).is_inside(form.width, form.height);
    return form.height == row.height && form.width == row.width;
  }

  [[nodiscard]] Status decode_region(Worker& worker, Bytes file, const MaskForm& form,
                                     NumberView& numbers) const noexcept {
    const Region& region = worker.nearest.region();
    const bool verify_data = batch_.rows.checksums == nullptr;
    if (form.kind == ImageKind::png) {
      return worker.png.decode_numbers(file, region, verify_data, numbers);
    }
    if (form.channels == 2) return Status::unsupported;
    const PicturePart part{region, region, static_cast<int>(form.channels)};
    PixelView pixels{};
    const Status status = worker.jpeg.decode_part(file, part, pixels);
    numbers = {pixels.data, pixels.stride, form.channels, 1};
    return status;
  }

  const MaskBatch batch_;
};

}  // namespace

std::unique_ptr<Task> mask_task(MaskBatch batch) noexcept {
  return std::make_unique<MaskTask>(std::move(batch));
}

}  // namespace fastio
