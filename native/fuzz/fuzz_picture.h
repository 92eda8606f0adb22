/// What the decoder targets share: decode hostile bytes into a picture of their own size.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "pictures/decode.h"
#include "pictures/probe.h"
#include "pictures/worker.h"

namespace fastio {

/// Decodes `file` in 1, 3 and 4 channels. The picture has the size that the header claims,
/// so that the decoder gets past it; it lies in memory of its exact size, so that one byte
/// too far is seen.
inline void decode_as_all(Worker& worker, Bytes file) {
  constexpr std::int64_t most_pixels = 1 << 18;
  const ImageInfo info = probe_image(file);
  if (info.status != Status::ok) return;
  if (std::int64_t{info.height} * info.width > most_pixels) return;
  for (const int channels : {1, 3, 4}) {
    const auto height = static_cast<std::size_t>(info.height);
    const auto width = static_cast<std::size_t>(info.width);
    Picture out{nullptr, height, width, channels};
    const auto memory = std::make_unique<std::uint8_t[]>(height * out.row_bytes());
    out.data = memory.get();
    const Status checked = decode_picture(worker, file, out, true);
    const Status unchecked = decode_picture(worker, file, out, false);
    // Looking closer may find more, never less.
    if (checked == Status::ok && unchecked != Status::ok) std::abort();
    if (checked == Status::bad_shape) std::abort();  // probe and decoder read one header
  }
}

}  // namespace fastio
