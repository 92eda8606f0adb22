// The GIF reader on a small file: its pixels, its regions, and every prefix of it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "check.h"
#include "fastio/gif.h"

namespace {

using fastio::Status;
using File = std::vector<std::uint8_t>;

// A screen of 3 x 1, whose frame of 2 x 1 begins at its second column; 4 colours of 7, 8, ... The
// codes: clear, 1, 2, end.
const File picture{'G', 'I', 'F', '8', '9', 'a', 3,  0,  1,  0,    0x81, 0,    0,   7,
                   8,   9,   10,  11,  12,  13,  14, 15, 16, 17,   18,   0x2C, 1,   0,
                   0,   0,   2,   0,   1,   0,   0,  2,  2,  0x8C, 0x0A, 0,    0x3B};

/// Decodes a region from memory of the file's exact size into memory of the region's.
Status decode(const File& file, const fastio::Region& region, int channels, File& pixels) {
  static fastio::GifDecoder decoder;
  const auto copy = std::make_unique<std::uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), copy.get());
  const Status status = decoder.open({copy.get(), file.size()});
  if (status != Status::ok) return status;
  fastio::Picture out{nullptr, region.height, region.width, channels};
  const auto memory = std::make_unique<std::uint8_t[]>(region.height * out.row_bytes());
  out.data = memory.get();
  const Status decoded = decoder.decode(region, out);
  pixels.assign(memory.get(), memory.get() + region.height * out.row_bytes());
  return decoded;
}

}  // namespace

int main() {
  File pixels;
  EXPECT(decode(picture, {0, 0, 3, 1}, 3, pixels) == Status::ok);
  EXPECT((pixels == File{7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT(decode(picture, {2, 0, 1, 1}, 4, pixels) == Status::ok);
  EXPECT((pixels == File{13, 14, 15, 255}));
  EXPECT(decode(picture, {0, 0, 1, 1}, 1, pixels) == Status::ok);
  EXPECT((pixels == File{fastio::luma(7, 8, 9)}));
  EXPECT(decode(picture, {2, 0, 2, 1}, 3, pixels) == Status::bad_shape);
  const std::size_t needed = picture.size() - 2;  // all but what follows the codes
  for (std::size_t size = 0; size < needed; ++size) {
    const File prefix(picture.begin(), picture.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(decode(prefix, {0, 0, 3, 1}, 3, pixels) != Status::ok);
  }
  return failures;
}
