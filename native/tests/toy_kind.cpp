// A kind of picture in one file: 16 bytes of header (the signature "NToy", four zeros, width and
// height), then RGB.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/simd.h"
#include "pictures/kinds.h"
#include "pictures/pixels.h"

namespace fastio {
namespace {

constexpr std::size_t header_bytes = 16;

bool is_toy(Bytes file) noexcept {
  return has_text(file, 0, "NToy\0\0\0\0");
}

Size probe_toy(Bytes file) noexcept {
  const Reader read(file, true);
  if (!read.has(0, header_bytes)) return truncated_size;
  return {Status::ok, read.u32(12), read.u32(8), 3};
}

/// Whether fewer bytes follow than the header announces; no product that could overflow.
bool toy_breaks_off(Bytes file) noexcept {
  const Size size = probe_toy(file);
  if (size.status != Status::ok || size.width == 0) return true;
  const auto stride = 3 * static_cast<std::size_t>(size.width);
  return (file.size() - header_bytes) / stride < static_cast<std::size_t>(size.height);
}

class ToyDecoder final : public RegionDecoder {
 public:
  [[nodiscard]] Status open(Bytes file) noexcept override {
    file_ = file;
    const Size size = probe_toy(file);
    if (size.status != Status::ok) return size.status;
    if (size.width == 0 || size.height == 0) return Status::corrupt;
    width_ = static_cast<std::size_t>(size.width);
    height_ = static_cast<std::size_t>(size.height);
    return toy_breaks_off(file) ? Status::truncated : Status::ok;
  }

  [[nodiscard]] std::size_t width() const noexcept override { return width_; }
  [[nodiscard]] std::size_t height() const noexcept override { return height_; }

  [[nodiscard]] Status decode(const Region& region, const Picture& out) noexcept override {
    if (!region.is_inside(width_, height_)) return Status::bad_shape;
    for (std::size_t y = 0; y < region.height; ++y) {
      const std::size_t first = (region.y + y) * width_ + region.x;
      convert(file_.data() + header_bytes + 3 * first, out, y);
    }
    return Status::ok;
  }

 private:
  static void convert(const std::uint8_t* rgb, const Picture& out, std::size_t y) noexcept {
    const auto channels = static_cast<std::size_t>(out.channels);
    if (channels == 1) return rgb_to_grey(rgb, out.row(y), out.width);
    reorder_pixels(rgb, {3, {0, 1, 2, 0}, false}, out.row(y), channels, out.width, simd_level());
  }

  Bytes file_;
  std::size_t width_ = 0;
  std::size_t height_ = 0;
};

std::unique_ptr<RegionDecoder> make_decoder() {
  return std::make_unique<ToyDecoder>();
}

}  // namespace

const PictureKind toy_kind{"NToy", "ntoy", is_toy, probe_toy, toy_breaks_off, make_decoder};

}  // namespace fastio
