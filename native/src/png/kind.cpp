// PNGs as a kind of picture. Whether one breaks off, check_png_chunks tells, by all of it.
#include "pictures/kinds.h"
#include "png/chunks.h"

namespace fastio {
namespace {

bool is_png(Bytes file) noexcept {
  return has_text(file, 0, "\x89PNG\r\n\x1A\n");
}

Size probe_png(Bytes file) noexcept {
  PngHeader header;
  const Status status = read_png_header(file, header);
  if (status != Status::ok) return {status, 0, 0, 0};
  const int channels = header.color == PngColor::palette ? 3 : header.samples();
  return {Status::ok, header.height, header.width, channels};
}

}  // namespace

const PictureKind png_kind{"PNG", "png", is_png, probe_png, nullptr, nullptr};

}  // namespace fastio
