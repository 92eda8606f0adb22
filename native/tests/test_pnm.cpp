// The PNM reader on small files: their pixels, their regions, and every prefix of them.
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "decode_region.h"

namespace {

using fastio::Status;

File picture(const std::string& header, const File& pixels) {
  File file(header.begin(), header.end());
  file.insert(file.end(), pixels.begin(), pixels.end());
  return file;
}

const File colors =
    picture("P6 3 2 255\n", {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19});
const File bits = picture("P4\n# rows of two bytes\r10 2\n", {0x80, 0x40, 0x01, 0x80});

constexpr auto decode = decode_region<fastio::ImageKind::pnm>;

void test_regions() {
  File pixels;
  EXPECT(decode(colors, {0, 1, 2, 1}, 3, pixels) == Status::ok);
  EXPECT((pixels == File{11, 12, 13, 14, 15, 16}));
  EXPECT(decode(colors, {2, 0, 1, 2}, 4, pixels) == Status::ok);
  EXPECT((pixels == File{7, 8, 9, 255, 17, 18, 19, 255}));
  EXPECT(decode(colors, {2, 1, 1, 1}, 1, pixels) == Status::ok);
  EXPECT((pixels == File{fastio::luma(17, 18, 19)}));
  EXPECT(decode(colors, {2, 0, 2, 2}, 3, pixels) == Status::bad_shape);
  EXPECT(decode(picture("P5 2 1 255 ", {7, 9}), {1, 0, 1, 1}, 4, pixels) == Status::ok);
  EXPECT((pixels == File{9, 9, 9, 255}));
  EXPECT(decode(bits, {7, 0, 3, 2}, 1, pixels) == Status::ok);
  EXPECT((pixels == File{255, 255, 0, 0, 0, 255}));
}

void test_headers() {
  File pixels;
  const File data(12, 200);
  const auto status = [&](const std::string& header) {
    return decode(picture(header, data), {0, 0, 1, 1}, 3, pixels);
  };
  EXPECT(status("P5 #a 9\n2\t2\r0255\n") == Status::ok);
  EXPECT(status("P5 0 2 255\n") == Status::corrupt);
  EXPECT(status("P5#a\n2 2 255\n") == Status::unsupported);
  EXPECT(status("P5 2 2 254\n") == Status::unsupported);
  EXPECT(status("P5 2 2 65535\n") == Status::unsupported);
  EXPECT(status("P5 2 2 255#a\n") == Status::unsupported);
  EXPECT(status("P5 -2 2 255\n") == Status::unsupported);
  EXPECT(status("P2 2 2 255\n") == Status::unsupported);
  EXPECT(status("P5 00000000002 2 255\n") == Status::unsupported);
  EXPECT(status("P6 2147483647 2147483647 255\n") == Status::truncated);
}

void test_prefixes() {
  File pixels;
  for (const File& file : {colors, bits}) {
    for (std::size_t size = 0; size < file.size(); ++size) {
      const File prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT(decode(prefix, {0, 0, 3, 2}, 3, pixels) == Status::truncated);
    }
  }
}

}  // namespace

int main() {
  test_regions();
  test_headers();
  test_prefixes();
  return failures;
}
