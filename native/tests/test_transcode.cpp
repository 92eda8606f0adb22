// JPEGs written anew keep their pixels; wrong places of intervals change no pixel; damage is
// reported.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "jpeg/jpeg.h"
#include "jpeg/jump_table.h"
#include "pictures/transcode.h"
#include "pictures/worker.h"

namespace {

using fastio::Blob;
using fastio::Bytes;
using fastio::Intervals;
using fastio::Outcome;
using fastio::Picture;
using fastio::Status;
using fastio::Transcoded;

constexpr std::size_t height = 83;
constexpr std::size_t width = 130;

/// Half a pattern, half noise.
std::vector<std::uint8_t> pixels_of(int channels) {
  std::mt19937 random(7);
  std::vector<std::uint8_t> pixels(height * width * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(i % 3 == 0 ? random() : i / 7);
  }
  return pixels;
}

Blob encoded(int channels, fastio::Subsampling subsampling, std::uint32_t restart = 0) {
  auto pixels = pixels_of(channels);
  fastio::JpegWriter writer;
  Blob out;
  const Picture picture{pixels.data(), height, width, channels};
  EXPECT(writer.encode(picture, {85, subsampling, restart}, {}, out) == Status::ok);
  return out;
}

std::vector<std::uint8_t> decoded(Bytes file, int channels = 3) {
  std::vector<std::uint8_t> pixels(height * width * static_cast<std::size_t>(channels));
  fastio::JpegDecoder decoder;
  EXPECT(decoder.decode(file, {pixels.data(), height, width, channels}) == Status::ok);
  return pixels;
}

Transcoded transcoded(Bytes file, const fastio::TranscodeOptions& options) {
  auto spans = std::make_unique<Bytes[]>(1);
  spans[0] = file;
  auto batch = std::make_shared<fastio::TranscodedBatch>(1);
  fastio::Worker worker;
  fastio::transcode_task(std::move(spans), options, batch)->run(worker, 0, 1);
  EXPECT(batch->done == 1);
  return std::move(batch->pictures[0]);
}

constexpr fastio::TranscodeOptions with_restart(std::uint32_t interval) {
  return {fastio::Bound::none, 0, 0, {90, fastio::Subsampling::s420, 0}, interval};
}

void test_rewritten_pixels_are_equal() {
  using enum fastio::Subsampling;
  for (const auto subsampling : {s444, s422, s420}) {
    for (const int channels : {1, 3}) {
      const Blob file = encoded(channels, subsampling);
      for (const std::uint32_t interval : {1U, 2U, 8U, 1000U}) {
        const Transcoded out = transcoded(file.bytes(), with_restart(interval));
        EXPECT(out.status == Status::ok && out.outcome == Outcome::rewritten);
        EXPECT(decoded(out.bytes.bytes()) == decoded(file.bytes()));
      }
    }
  }
}

/// A part of the picture, with the places that an index gives.
Status part(Bytes file, Bytes places, std::vector<std::uint8_t>& out) {
  const fastio::Region region{70, 50, 20, 20};
  fastio::JpegDecoder decoder;
  fastio::PixelView view{};
  const Status status =
      decoder.decode_part(file, {{0, 0, width, height}, region, 3, 1, Intervals(places)}, view);
  out.clear();
  for (std::size_t y = 0; status == Status::ok && y < region.height; ++y) {
    out.insert(out.end(), view.data + y * view.stride, view.data + y * view.stride + 60);
  }
  return status;
}

void test_wrong_places_change_nothing() {
  const Transcoded file =
      transcoded(encoded(3, fastio::Subsampling::s444).bytes(), with_restart(1));
  const Bytes bytes = file.bytes.bytes();
  std::vector<std::uint32_t> places(file.intervals.size() / 4);
  EXPECT(places.size() == 2 + (17 * 11 - 1) / 8);  // behind tag and checksum
  std::memcpy(places.data(), file.intervals.bytes().data(), 4 * places.size());
  const auto view = [&] {
    return Bytes(reinterpret_cast<const std::uint8_t*>(places.data()), 4 * places.size());
  };
  std::vector<std::uint8_t> expected;
  std::vector<std::uint8_t> found;
  EXPECT(part(bytes, {}, expected) == Status::ok);
  EXPECT(part(bytes, view(), found) == Status::ok && found == expected);

  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    auto wrong = places;
    for (auto& place : wrong) {
      const bool hits_a_marker = round % 3 == 0;
      place =
          hits_a_marker ? places[random() % places.size()] : static_cast<std::uint32_t>(random());
      if (round % 3 == 1) place = ~(place % static_cast<std::uint32_t>(bytes.size() + 3));
    }
    if (round % 2 == 0) std::copy_n(places.begin(), 2, wrong.begin());
    std::swap(places, wrong);
    const Status status = part(bytes, view(), found);
    EXPECT(status == Status::ok && found == expected);
    std::swap(places, wrong);
  }
}

void test_cuts_are_seen() {
  const Blob file = encoded(3, fastio::Subsampling::s420);
  for (std::size_t size = 0; size < file.size(); size += 61) {
    EXPECT(transcoded(file.bytes().first(size), with_restart(4)).status != Status::ok);
  }
}

void test_damage_is_seen_or_harmless() {
  const Blob file = encoded(3, fastio::Subsampling::s420);
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint8_t> damaged(file.bytes().begin(), file.bytes().end());
    damaged[2 + random() % (damaged.size() - 2)] = static_cast<std::uint8_t>(random());
    const Transcoded out = transcoded(damaged, with_restart(4));
    if (out.status != Status::ok || out.outcome != Outcome::rewritten) continue;
    const bool same_size = out.shape[0] == height && out.shape[1] == width;
    if (same_size) EXPECT(decoded(out.bytes.bytes()) == decoded(damaged));
  }
}

void test_bounds() {
  const Blob file = encoded(3, fastio::Subsampling::s420);
  const Transcoded small = transcoded(
      file.bytes(), {fastio::Bound::short_side, 41, 0, {90, fastio::Subsampling::s420, 3}, 0});
  EXPECT(small.outcome == Outcome::resized && small.shape[0] == 41 && small.shape[1] == 64);
  const Transcoded fits = transcoded(
      file.bytes(), {fastio::Bound::long_side, 130, 0, {90, fastio::Subsampling::s420, 0}, 0});
  EXPECT(fits.outcome == Outcome::fitting);
  EXPECT(std::ranges::equal(fits.bytes.bytes(), file.bytes()));
}

}  // namespace

int main() {
  test_rewritten_pixels_are_equal();
  test_wrong_places_change_nothing();
  test_cuts_are_seen();
  test_damage_is_seen_or_harmless();
  test_bounds();
  return failures;
}
