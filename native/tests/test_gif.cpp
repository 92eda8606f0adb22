// The GIF reader on a small file: its pixels, its regions, and every prefix of it.
#include <cstdint>
#include <vector>

#include "check.h"
#include "decode_region.h"
#include "pictures/gif.h"

namespace {

using fastio::Status;

// A screen of 3 x 1, whose frame of 2 x 1 begins at its second column; 4 colours of 7, 8, ... The
// codes: clear, 1, 2, end.
const File picture{'G', 'I', 'F', '8', '9', 'a', 3,  0,  1,  0,    0x81, 0,    0,   7,
                   8,   9,   10,  11,  12,  13,  14, 15, 16, 17,   18,   0x2C, 1,   0,
                   0,   0,   2,   0,   1,   0,   0,  2,  2,  0x8C, 0x0A, 0,    0x3B};

constexpr auto decode = decode_region<fastio::GifDecoder>;

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
