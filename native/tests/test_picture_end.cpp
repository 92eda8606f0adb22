// Files that break off are told by their ends; bytes behind the end of a JPEG are no sign of it.
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "check.h"
#include "pictures/probe.h"

namespace {

using fastio::ImageKind;
using File = std::vector<std::uint8_t>;

/// A header with a thumbnail's end marker in it, a scan with a stuffed byte, and no end marker.
const File scan{0xFF, 0xD8, 0xFF, 0xE1, 0, 4, 0xFF, 0xD9, 0xFF, 0xDA, 0, 2, 1, 0xFF, 0, 2};

File with(File file, std::initializer_list<std::uint8_t> more) {
  file.insert(file.end(), more);
  return file;
}

bool breaks_off(const File& file) {
  return fastio::may_break_off(file, fastio::image_kind(file));
}

void test_jpegs() {
  EXPECT(breaks_off(scan));
  EXPECT(breaks_off(with(scan, {0xFF})));
  EXPECT(breaks_off(with(scan, {0, 0, 0, 0, 0})));
  EXPECT(!breaks_off(with(scan, {0xFF, 0xD9})));
  EXPECT(!breaks_off(with(scan, {0xFF, 0xFF, 0xD9, 'm', 'o', 'r', 'e', 0xFF})));
  for (std::size_t size = 3; size < scan.size();
       ++size) {  // in memory of its own: a sanitizer sees more
    const File prefix(scan.begin(), scan.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(breaks_off(prefix) || size == 8);  // those that end with the thumbnail's marker end well
  }
}

void test_others() {
  const File gif{'G', 'I', 'F', '8', '9', 'a', 1};
  EXPECT(breaks_off(gif) && !breaks_off(with(gif, {0x3B})));
  File webp{'R', 'I', 'F', 'F', 6, 0, 0, 0, 'W', 'E', 'B', 'P', 1, 2};
  EXPECT(!breaks_off(webp));
  webp.pop_back();
  EXPECT(breaks_off(webp));
  const File pnm{'P', '6', '\n', '1', ' ', '1', '\n', '2', '5', '5', '\n', 1, 2};
  EXPECT(breaks_off(pnm) && !breaks_off(with(pnm, {3})));
  const File deep{'P', '5', '\n', '1', ' ', '1', '\n', '2', '5', '6', '\n', 1};
  EXPECT(breaks_off(deep) && !breaks_off(with(deep, {2})));
  EXPECT(!breaks_off({'P', '2', ' ', '9', ' ', '9', ' ', '9', '\n'}));  // numbers as text
}

/// One strip of 5 bytes behind the directory, whose sizes lie behind the strip.
const File tiff{'I', 'I', '*', 0, 8, 0, 0, 0, 2,  0,        // two entries
                17,  1,   4,   0, 1, 0, 0, 0, 38, 0, 0, 0,  // where it begins
                23,  1,   4,   0, 2, 0, 0, 0, 43, 0, 0, 0,  // two sizes, elsewhere
                0,   0,   0,   0, 1, 2, 3, 4, 5,  5, 0, 0, 0, 9, 0, 0, 0};

void test_tiffs() {
  EXPECT(!breaks_off(tiff));
  EXPECT(!breaks_off(with(tiff, {1, 2, 3})));
  for (std::size_t size = 4; size < tiff.size(); ++size) {
    EXPECT(breaks_off(File(tiff.begin(), tiff.begin() + static_cast<std::ptrdiff_t>(size))));
  }
  File far = tiff;
  far[43] = 14;  // ends behind the file
  EXPECT(breaks_off(far));
  far = tiff;
  far[12] = 99;  // numbers of an unknown type
  EXPECT(!breaks_off(far));
}

}  // namespace

int main() {
  test_jpegs();
  test_others();
  test_tiffs();
  return failures;
}
