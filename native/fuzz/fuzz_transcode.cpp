// libFuzzer target: hostile pictures written anew. What is rewritten must decode to the same
// pixels, also by places of restart intervals that the fuzzer makes up.
//
// The first bytes say what is wanted, then come places, the rest is the file.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "pictures/decode.h"
#include "pictures/probe.h"
#include "pictures/transcode.h"
#include "pictures/worker.h"

namespace {

using fastio::Bytes;
using fastio::Status;

constexpr std::size_t recipe_bytes = 4;
constexpr std::size_t place_bytes = 16;
constexpr std::int64_t most_pixels = 1 << 16;

std::vector<std::uint8_t> decoded(fastio::Worker& worker, Bytes file, const std::int32_t* shape,
                                  Status& status) {
  const auto height = static_cast<std::size_t>(shape[0]);
  const auto width = static_cast<std::size_t>(shape[1]);
  std::vector<std::uint8_t> pixels(height * width * 3);
  status = decode_picture(worker, file, {pixels.data(), height, width, 3}, true);
  return pixels;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fastio::Worker worker;
  if (size < recipe_bytes + place_bytes) return 0;
  const Bytes places(data + recipe_bytes, place_bytes);
  const Bytes file(data + recipe_bytes + place_bytes, size - recipe_bytes - place_bytes);
  const fastio::ImageInfo info = fastio::probe_image(file);
  if (info.status != Status::ok || std::int64_t{info.height} * info.width > most_pixels) return 0;
  const fastio::TranscodeOptions options{
      static_cast<fastio::Bound>(data[0] % 3),
      1 + data[1] % 64,
      1 + data[1] % 64,
      {1 + data[2] % 100, static_cast<fastio::Subsampling>(data[0] / 3 % 3), data[3] % 16U},
      data[3] / 16U};
  auto spans = std::make_unique<Bytes[]>(1);
  spans[0] = file;
  auto batch = std::make_shared<fastio::TranscodedBatch>(1);
  transcode_task(std::move(spans), options, batch)->run(worker, 0, 1);
  const fastio::Transcoded& out = batch->pictures[0];
  if (out.status != Status::ok) return 0;
  Status before{};
  Status after{};
  const auto new_pixels = decoded(worker, out.bytes.bytes(), out.shape, after);
  if (out.outcome == fastio::Outcome::resized && after != Status::ok) std::abort();
  if (out.outcome == fastio::Outcome::rewritten) {
    // Coefficients may be sound where sampling factors are such that nobody makes pixels of them.
    const auto old_pixels = decoded(worker, file, out.shape, before);
    // Nor may damage become a sound picture.
    if (before != after || (before == Status::ok && old_pixels != new_pixels)) std::abort();
    fastio::PixelView view{};
    const auto height = static_cast<std::size_t>(out.shape[0]);
    const auto width = static_cast<std::size_t>(out.shape[1]);
    const fastio::Region last{width - 1, height - 1, 1, 1};
    (void)worker.jpeg.decode_part(
        out.bytes.bytes(), {{0, 0, width, height}, last, 3, 1, fastio::Intervals(places)}, view);
  }
  return 0;
}
