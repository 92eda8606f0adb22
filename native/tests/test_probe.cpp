// Kinds are told by their first bytes; prefixes of a header are truncated, never read beyond.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.h"
#include "pictures/probe.h"

namespace {

using fastio::ImageKind;
using fastio::Status;

const std::vector<std::uint8_t> jpeg_header{0xFF, 0xD8, 0xFF, 0xC0, 0, 11,   8, 0,
                                            5,    0,    7,    1,    1, 0x11, 0};
const std::vector<std::uint8_t> pnm_header{'P', '6', '\n', '#',  'x', '\n',
                                           '7', ' ', '5',  '\n', '2'};

void test_sizes() {
  const fastio::ImageInfo jpeg = fastio::probe_image(jpeg_header);
  EXPECT(jpeg.status == Status::ok && jpeg.kind == ImageKind::jpeg);
  EXPECT(jpeg.height == 5 && jpeg.width == 7 && jpeg.channels == 1);
  const fastio::ImageInfo pnm = fastio::probe_image(pnm_header);
  EXPECT(pnm.status == Status::ok && pnm.kind == ImageKind::pnm);
  EXPECT(pnm.height == 5 && pnm.width == 7 && pnm.channels == 3);
}

void test_every_prefix_of_the_header() {
  for (std::ptrdiff_t size = 0; size < 12; ++size) {  // in memory of its own: a sanitizer sees more
    const std::vector<std::uint8_t> prefix(jpeg_header.begin(), jpeg_header.begin() + size);
    EXPECT(fastio::probe_image(prefix).status != Status::ok);
  }
}

void test_what_is_no_picture() {
  const std::vector<std::uint8_t> text(40, 'x');
  EXPECT(fastio::probe_image(text).status == Status::not_image);
  EXPECT(fastio::probe_image({}).status == Status::truncated);
}

}  // namespace

int main() {
  test_sizes();
  test_every_prefix_of_the_header();
  test_what_is_no_picture();
  return failures;
}
