// Our entropy decoder gives the pixels that libjpeg-turbo's gives, or reports damage.
#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <vector>

#include "check.h"
#include "jpeg/huffman.h"
#include "jpeg/jpeg.h"
#include "jpeg_file.h"

namespace {

using fastio::Entropy;
using fastio::Status;

struct Decoded {
  Status status;
  File pixels;
};

Decoded decode(Entropy entropy, const File& file, int width, int height) {
  static fastio::JpegDecoder own(Entropy::fastio);  // kept, so that tables are found again
  static fastio::JpegDecoder theirs(Entropy::libjpeg_turbo);
  Decoded decoded;
  const auto w = static_cast<std::size_t>(width);
  const auto h = static_cast<std::size_t>(height);
  decoded.pixels.resize(w * h * 3);
  auto& decoder = entropy == Entropy::fastio ? own : theirs;
  decoded.status = decoder.decode(file, {decoded.pixels.data(), h, w, 3});
  return decoded;
}

/// Ours may see more damage than libjpeg-turbo does, never less, and pixels are the same.
void expect_equal_or_stricter(const File& file, const Recipe& recipe) {
  const Decoded theirs = decode(Entropy::libjpeg_turbo, file, recipe.width, recipe.height);
  const Decoded own = decode(Entropy::fastio, file, recipe.width, recipe.height);
  if (own.status == Status::ok) {
    EXPECT(theirs.status == Status::ok);
    EXPECT(theirs.pixels == own.pixels);
  } else if (theirs.status == Status::ok) {
    EXPECT(own.status == Status::corrupt);
  }
}

std::size_t find_marker(const File& file, int marker) {
  const std::array<std::uint8_t, 2> wanted{0xFF, static_cast<std::uint8_t>(marker)};
  const auto found = std::search(file.begin(), file.end(), wanted.begin(), wanted.end());
  return static_cast<std::size_t>(found - file.begin());
}

void test_own_decoder_is_in_use() {
  EXPECT(fastio::entropy_in_use() == Entropy::fastio);
}

void test_sound_files_are_equal() {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const Recipe recipe = random_recipe(random);
    const File file = encode(recipe, random);
    const Decoded theirs = decode(Entropy::libjpeg_turbo, file, recipe.width, recipe.height);
    const Decoded own = decode(Entropy::fastio, file, recipe.width, recipe.height);
    EXPECT(theirs.status == Status::ok);
    EXPECT(own.status == Status::ok);
    EXPECT(theirs.pixels == own.pixels);
  }
}

/// Intervals that are too large to decode two of them at once.
void test_large_intervals_are_equal() {
  std::mt19937 random(7);
  const Recipe recipe{1200, 500, 1, 1, 1, 80, 9000, false, Content::smooth};
  expect_equal_or_stricter(encode(recipe, random), recipe);
}

File decode_part(Entropy entropy, const File& file, const fastio::Region& region) {
  fastio::JpegDecoder decoder(entropy);
  fastio::PixelView view{};
  EXPECT(Status::ok == decoder.decode_part(file, {region, region, 3}, view));
  File pixels;
  for (std::size_t y = 0; y < region.height; ++y) {
    const std::uint8_t* row = view.data + y * view.stride;
    pixels.insert(pixels.end(), row, row + 3 * region.width);
  }
  return pixels;
}

/// libjpeg-turbo then asks for MCUs whose values it does not want, and ours passes over restart
/// intervals.
void test_parts_are_equal() {
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    const Recipe recipe = random_recipe(random);
    const File file = encode(recipe, random);
    const auto part_of = [&random](int size) -> std::array<std::size_t, 2> {
      const std::size_t start = random() % static_cast<unsigned>(size);
      return {start, 1 + random() % (static_cast<std::size_t>(size) - start)};
    };
    const auto [x, width] = part_of(recipe.width);
    const auto [y, height] = part_of(recipe.height);
    const fastio::Region region{x, y, width, height};
    EXPECT(decode_part(Entropy::libjpeg_turbo, file, region) ==
           decode_part(Entropy::fastio, file, region));
  }
}

void test_unwanted_intervals_are_passed_over() {
  std::mt19937 random(6);
  const Recipe recipe{96, 96, 3, 1, 1, 80, 4, true, Content::noise};
  const File file = encode(recipe, random);
  File damaged = file;
  const std::size_t second = find_marker(file, JPEG_RST0) + 2;  // columns 4 to 7 of 12, row 0
  std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(second), 20, std::uint8_t{0xFE});
  EXPECT(decode(Entropy::fastio, damaged, recipe.width, recipe.height).status != Status::ok);
  const fastio::Region left_bottom{0, 40, 16, 56};
  EXPECT(decode_part(Entropy::fastio, file, left_bottom) ==
         decode_part(Entropy::fastio, damaged, left_bottom));
}

void test_cuts_are_seen() {
  std::mt19937 random(2);
  for (const unsigned interval : {0U, 1U}) {
    const Recipe recipe{20, 18, 3, 2, 2, 80, interval, true, Content::noise};
    const File file = encode(recipe, random);
    for (std::size_t size = 0; size < file.size(); ++size) {
      const File cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT(decode(Entropy::fastio, cut, recipe.width, recipe.height).status != Status::ok);
      expect_equal_or_stricter(cut, recipe);
      File ended = cut;
      ended.insert(ended.end(), {0xFF, JPEG_EOI});
      expect_equal_or_stricter(ended, recipe);
    }
  }
}

void test_damage_is_seen() {
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const Recipe recipe = random_recipe(random);
    const File file = encode(recipe, random);
    for (int j = 0; j < 60; ++j) {
      File damaged = file;
      damaged[random() % file.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      if (j % 3 == 0) damaged[random() % file.size()] = 0xFF;
      if (j % 5 == 0) damaged.erase(damaged.begin() + static_cast<int>(random() % file.size()));
      expect_equal_or_stricter(damaged, recipe);
    }
  }
}

void test_restart_markers() {
  std::mt19937 random(4);
  const Recipe recipe{60, 20, 3, 1, 1, 80, 2, false, Content::noise};
  const File file = encode(recipe, random);
  const auto status_with = [&](auto change) {
    File changed = file;
    change(changed, static_cast<std::ptrdiff_t>(find_marker(file, JPEG_RST0 + 1)));
    expect_equal_or_stricter(changed, recipe);
    return decode(Entropy::fastio, changed, recipe.width, recipe.height).status;
  };
  const auto insert = [](std::initializer_list<std::uint8_t> bytes) {
    return [bytes](File& f, std::ptrdiff_t at) { f.insert(f.begin() + at, bytes); };
  };
  EXPECT(Status::ok == status_with(insert({})));
  EXPECT(Status::ok == status_with(insert({0xFF, 0xFF})));     // padding
  EXPECT(Status::ok == status_with(insert({0x12, 0x34})));     // bytes that nobody needs
  EXPECT(Status::ok == status_with(insert({0xFF, 0x00, 7})));  // among them a stuffed one
  EXPECT(Status::corrupt == status_with(insert({0xFF, 0xD5})));
  EXPECT(Status::corrupt == status_with([](File& f, std::ptrdiff_t at) {
           f.erase(f.begin() + at, f.begin() + at + 2);
         }));
  EXPECT(Status::corrupt == status_with([](File& f, std::ptrdiff_t at) {
           f[static_cast<std::size_t>(at) + 1] = JPEG_RST0 + 2;
         }));
}

/// A decoder of one grey block, with one code for DC (no difference) and the AC codes given
/// from 2 bits on, one a length.
fastio::HuffmanDecoder decoder_of(std::initializer_list<std::uint8_t> ac_symbols) {
  std::array<std::uint8_t, 16> dc_counts{1};
  std::array<std::uint8_t, 16> ac_counts{};
  std::array<std::uint8_t, 256> symbols{};
  fastio::HuffmanDecoder decoder;
  decoder.set_dc_table(0, {dc_counts, symbols});
  std::ranges::copy(ac_symbols, symbols.begin());
  std::fill_n(ac_counts.begin() + 1, ac_symbols.size(), std::uint8_t{1});
  decoder.set_ac_table(0, {ac_counts, symbols});
  const std::array<fastio::HuffmanDecoder::Block, 1> blocks{{{0, 0, 0}}};
  decoder.begin(blocks, 1, 0);
  return decoder;
}

Status decode_block(std::initializer_list<std::uint8_t> ac_symbols, const File& bits,
                    fastio::Coefficients& block) {
  auto decoder = decoder_of(ac_symbols);
  fastio::Bytes input(bits);
  fastio::Coefficients* blocks[] = {&block};
  std::ranges::fill(block, std::int16_t{0});
  return decoder.decode_mcu(input, blocks);
}

void test_blocks_that_are_damaged() {
  fastio::Coefficients block{};
  // DC 0, then 00: end of block. Four stray bits.
  EXPECT(Status::ok == decode_block({0x00}, {0b00000000}, block));
  // 00 1: three zeros and a one; 010: end of block.
  EXPECT(Status::ok == decode_block({0x31, 0x00}, {0b00010100}, block));
  EXPECT(block[9] == 1);  // the fifth in zigzag order
  // No code begins with 1.
  EXPECT(Status::corrupt == decode_block({0x00}, File(4, 0b01111111), block));
  // Runs of fifteen until they leave the block: 63 zeros are three runs of sixteen and one of 15.
  EXPECT(Status::ok == decode_block({0xF0, 0xE1}, {0b00000000, 0b10100000}, block));
  EXPECT(block[63] == 1);
  EXPECT(Status::corrupt == decode_block({0xF0, 0xF1}, {0b00000000, 0b10100000}, block));
  // Sixteen zeros where fewer are left: harmless, and libjpeg-turbo says nothing either.
  EXPECT(Status::ok == decode_block({0xF0}, {0b00000000, 0b00000000}, block));
  // Bits end before the block does: at the end, and at a marker.
  EXPECT(Status::truncated == decode_block({0x01}, {0b00010010}, block));
  EXPECT(Status::corrupt == decode_block({0x01}, {0b00010010, 0xFF, JPEG_EOI}, block));
  // A stuffed 0xFF is data; repeated it is not, where libjpeg-turbo mixes two attempts.
  EXPECT(Status::ok == decode_block({0x00, 0x0F}, {0b00101111, 0xFF, 0x00, 0b11100000}, block));
  EXPECT(block[1] == 0x7FFF);
  EXPECT(Status::corrupt ==
         decode_block({0x00, 0x0F}, {0b00101111, 0xFF, 0xFF, 0x00, 0b11100000}, block));
}

}  // namespace

int main() {
  test_own_decoder_is_in_use();
  test_sound_files_are_equal();
  test_large_intervals_are_equal();
  test_parts_are_equal();
  test_unwanted_intervals_are_passed_over();
  test_cuts_are_seen();
  test_damage_is_seen();
  test_restart_markers();
  test_blocks_that_are_damaged();
  return failures;
}
