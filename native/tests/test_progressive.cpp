// Progressive scans: all instruction sets leave the same coefficients, damaged or not, and a scan
// that refines gives those of one that sends all bits.
#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "jpeg/progressive.h"

namespace {

using fastio::Bytes;
using fastio::Coefficients;
using fastio::ProgressiveDecoder;
using fastio::SimdLevel;
using fastio::Status;

constexpr std::size_t blocks = 50;

/// Thirty codes of five bits, then longer ones: all bits but sixteen ones begin with a code.
constexpr std::array<std::uint8_t, 16> counts{0, 0, 0, 0, 30, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
constexpr std::array<std::uint8_t, 256> refinements{
    0x00, 0x01, 0x11, 0x21, 0x31, 0x01, 0x11, 0x41, 0x51, 0x10, 0x20, 0x30, 0x01, 0x00, 0x61,
    0xF0, 0x61, 0x01, 0x01, 0x11, 0x00, 0x00, 0x11, 0x21, 0x00, 0x00, 0x01, 0x11, 0x00, 0x21,
    0x01, 0x00, 0x11, 0x01, 0x10, 0x01, 0x00, 0x20, 0x01, 0x11, 0x00, 0xF0, 0x01};

/// The same with some larger values, for scans that send all bits.
constexpr auto symbols = [] {
  auto all = refinements;
  for (const std::size_t i : {7, 17, 22, 31, 40}) all[i] = 0x02;
  all[26] = 0x05;
  return all;
}();

struct Picture {
  std::array<Coefficients, blocks> coefficients{};
  std::vector<Status> statuses;
};

std::vector<std::uint8_t> random_bits(std::size_t size, std::mt19937& random) {
  std::vector<std::uint8_t> bits(size);
  for (auto& byte : bits) byte = static_cast<std::uint8_t>(random() % 255);  // no marker
  return bits;
}

Picture decode(const std::vector<std::vector<std::uint8_t>>& scans, SimdLevel level) {
  Picture picture;
  ProgressiveDecoder decoder(level);
  const ProgressiveDecoder::Size size{blocks, 1};
  EXPECT(decoder.begin_picture({&size, 1}));
  const ProgressiveDecoder::Component component{0, 1, 1, 0};
  std::uint32_t low = 3;
  for (const auto& scan : scans) {
    const bool refines = low < 3;
    decoder.set_ac_table({counts, refines ? refinements : symbols});
    decoder.begin_scan({refines ? 1U : 2U, 63, low--, refines, 0}, {&component, 1});
    Bytes input(scan.data(), scan.size());
    Coefficients* row = picture.coefficients.data();
    const ProgressiveDecoder::Rows rows{&row, 0};
    picture.statuses.push_back(decoder.decode_row(input, {&rows, 1}, blocks));
    if (picture.statuses.back() != Status::ok) break;
  }
  return picture;
}

void test_levels_agree() {
  std::mt19937 random(1);
  std::size_t sound = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::vector<std::uint8_t>> scans;
    for (int i = 0; i < 3; ++i) scans.push_back(random_bits(round % 3 == 0 ? 40 : 4000, random));
    const Picture scalar = decode(scans, SimdLevel::none);
    for (const SimdLevel level : {SimdLevel::avx2, SimdLevel::avx512}) {
      if (level > fastio::simd_level()) continue;
      const Picture other = decode(scans, level);
      EXPECT(scalar.statuses == other.statuses);
      if (other.statuses.back() != Status::ok) continue;
      for (std::size_t i = 0; i < blocks; ++i) {
        EXPECT(std::ranges::equal(scalar.coefficients[i], other.coefficients[i]));
      }
    }
    sound += scalar.statuses.size() == 3;
  }
  EXPECT(sound > 100);
}

/// 1 at place 1, then a run of ended blocks; refined: grows, and a new -1 behind the next zero.
void test_a_refined_coefficient() {
  const std::vector<std::uint8_t> first{0b00001'1'00, 0b000'00000};    // 01, sign; 00
  const std::vector<std::uint8_t> second{0b00010'0'1'0, 0b0000'0000};  // 11, sign, growth; 00
  Picture picture;
  ProgressiveDecoder decoder;
  const ProgressiveDecoder::Size size{1, 1};
  EXPECT(decoder.begin_picture({&size, 1}));
  decoder.set_ac_table({counts, symbols});
  const ProgressiveDecoder::Component component{0, 1, 1, 0};
  Coefficients* row = picture.coefficients.data();
  const ProgressiveDecoder::Rows rows{&row, 0};
  Bytes input(first.data(), first.size());
  decoder.begin_scan({1, 63, 1, false, 0}, {&component, 1});
  EXPECT(decoder.decode_row(input, {&rows, 1}, 1) == Status::ok);
  EXPECT(picture.coefficients[0][1] == 2);
  input = Bytes(second.data(), second.size());
  decoder.begin_scan({1, 63, 0, true, 0}, {&component, 1});
  EXPECT(decoder.decode_row(input, {&rows, 1}, 1) == Status::ok);
  EXPECT(picture.coefficients[0][1] == 3);
  EXPECT(picture.coefficients[0][8] == 0);  // the run of one
  EXPECT(picture.coefficients[0][16] == -1);
}

void test_missing_bits_are_seen() {
  const std::vector<std::uint8_t> scan{0b00001'1'00};
  Coefficients block{};
  Coefficients* row = &block;
  ProgressiveDecoder decoder;
  const ProgressiveDecoder::Size size{1, 1};
  EXPECT(decoder.begin_picture({&size, 1}));
  decoder.set_ac_table({counts, symbols});
  const ProgressiveDecoder::Component component{0, 1, 1, 0};
  const ProgressiveDecoder::Rows rows{&row, 0};
  Bytes input(scan.data(), scan.size());
  decoder.begin_scan({1, 63, 1, false, 0}, {&component, 1});
  EXPECT(decoder.decode_row(input, {&rows, 1}, 1) == Status::truncated);
}

}  // namespace

int main() {
  test_levels_agree();
  test_a_refined_coefficient();
  test_missing_bits_are_seen();
  return failures;
}
