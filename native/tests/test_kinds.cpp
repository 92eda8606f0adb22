// Kinds that are added at run time: recognised behind the native ones, and left to Pillow.
#include <array>
#include <cstdint>
#include <vector>

#include "check.h"
#include "pictures/decode.h"
#include "pictures/kinds.h"
#include "pictures/probe.h"
#include "pictures/worker.h"

namespace {

using fastio::ImageKind;
using fastio::Status;
using File = std::vector<std::uint8_t>;

const File toy{9, 9, 9, 9, 'T', 'O', 'Y', 0, 0, 0, 0, 0, 0, 0};

void test_native_kinds() {
  for (std::size_t i = 0; i < fastio::native_kinds().size(); ++i) {
    const auto number = ImageKind{static_cast<std::int32_t>(i) + 1};
    EXPECT(fastio::native_kind(number) == fastio::native_kinds()[i]);
  }
  EXPECT(fastio::native_kind(ImageKind::jpeg) == &fastio::jpeg_kind);
  EXPECT(fastio::native_kind(ImageKind::unknown) == nullptr);
}

void test_an_added_kind_is_pillows() {
  fastio::Worker worker;
  std::array<std::uint8_t, 3> pixel{};
  const fastio::Picture out{pixel.data(), 1, 1, 3};
  EXPECT(fastio::image_kind(toy) == ImageKind::unknown);
  EXPECT(decode_picture(worker, toy, out, true) == Status::not_image);

  const std::array<fastio::Signature, 2> signatures{
      {{4, 3, {'T', 'O', 'Y'}}, {0, 2, {0xFF, 0xD8}}}};
  const ImageKind kind = fastio::add_kind(signatures);

  EXPECT(static_cast<std::size_t>(kind) == fastio::native_kinds().size() + 1);
  EXPECT(fastio::image_kind(toy) == kind && fastio::native_kind(kind) == nullptr);
  EXPECT(fastio::image_kind({toy.data(), 6}) == ImageKind::unknown);
  EXPECT(fastio::image_kind(File{0xFF, 0xD8, 0xFF}) == ImageKind::jpeg);
  const fastio::ImageInfo info = fastio::probe_image(toy);
  EXPECT(info.status == Status::unsupported && info.kind == kind && info.width == 0);
  EXPECT(!fastio::may_break_off(toy, kind));
  EXPECT(decode_picture(worker, toy, out, true) == Status::unsupported);
}

void test_a_full_table_adds_nothing() {
  const std::vector<fastio::Signature> many(300, {0, 1, {1}});
  EXPECT(fastio::add_kind(many) == ImageKind::unknown);
  EXPECT(fastio::image_kind(File{1, 2, 3}) == ImageKind::unknown);
}

}  // namespace

int main() {
  test_native_kinds();
  test_an_added_kind_is_pillows();
  test_a_full_table_adds_nothing();
  return failures;
}
