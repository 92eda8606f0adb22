// A region of a picture, by the decoder of its kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/status.h"
#include "pictures/kinds.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

using File = std::vector<std::uint8_t>;

/// Decodes from memory of the file's exact size into memory of the region's, so that a sanitizer
/// sees whatever is read or written beside them.
template <fastio::ImageKind kind>
fastio::Status decode_region(const File& file, const fastio::Region& region, int channels,
                             File& pixels) {
  static fastio::RegionDecoders decoders;
  fastio::RegionDecoder* const decoder = decoders.of(kind);
  if (decoder == nullptr) return fastio::Status::unsupported;
  const auto copy = std::make_unique<std::uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), copy.get());
  const fastio::Status status = decoder->open({copy.get(), file.size()});
  if (status != fastio::Status::ok) return status;
  fastio::Picture out{nullptr, region.height, region.width, channels};
  const auto memory = std::make_unique<std::uint8_t[]>(region.height * out.row_bytes());
  out.data = memory.get();
  const fastio::Status decoded = decoder->decode(region, out);
  pixels.assign(memory.get(), memory.get() + region.height * out.row_bytes());
  return decoded;
}
