// The walker notes the points that decoding MCU by MCU comes by, and sees the same damage.
#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "check.h"
#include "jpeg/huffman.h"
#include "jpeg/scan_walker.h"
#include "jpeg_file.h"

namespace {

using fastio::Bytes;
using fastio::HuffmanDecoder;
using fastio::ScanGrid;
using fastio::ScanPoint;
using fastio::ScanWalker;
using fastio::Status;

struct Codes {
  std::array<std::uint8_t, 16> counts{};
  std::array<std::uint8_t, 256> symbols{};

  [[nodiscard]] fastio::HuffmanCodes view() const { return {counts, symbols}; }
};

/// A scan without restart markers, and all that is needed to read it.
struct Scan {
  File file;
  std::size_t start = 0;
  ScanGrid grid{};
  std::vector<HuffmanDecoder::Block> blocks;
  std::array<Codes, 2> dc;
  std::array<Codes, 2> ac;
};

struct Walked {
  Status status;
  std::vector<ScanPoint> points;

  bool operator==(const Walked&) const = default;
};

template <typename Reader>
void set_tables(const Scan& scan, Reader& reader) {
  for (std::size_t i = 0; i < scan.dc.size(); ++i) {
    reader.set_dc_table(i, scan.dc[i].view());
    reader.set_ac_table(i, scan.ac[i].view());
  }
}

/// By decoding MCU by MCU. Without points where there is damage.
Walked decode(const Scan& scan) {
  static const auto decoder = std::make_unique<HuffmanDecoder>();
  set_tables(scan, *decoder);
  decoder->begin(scan.blocks, scan.grid.columns * scan.grid.rows, 0);
  const Bytes file(scan.file);
  Bytes input = file.subspan(scan.start);
  Walked walked{Status::ok, {}};
  for (std::size_t row = 0; row < scan.grid.rows; ++row) {
    for (std::size_t number = 0; number < scan.grid.points_per_row(); ++number) {
      walked.points.push_back(decoder->point(file, input));
      const std::size_t stop = scan.grid.column(number + 1);
      for (std::size_t column = scan.grid.column(number); column < stop; ++column) {
        walked.status = decoder->decode_mcu(input, nullptr);
        if (walked.status != Status::ok) return {walked.status, {}};
      }
    }
  }
  walked.points.push_back(decoder->point(file, input));
  return walked;
}

bool begin(const Scan& scan, ScanWalker& walker) {
  set_tables(scan, walker);
  const Bytes file(scan.file);
  return walker.begin(file, file.subspan(scan.start), scan.grid, scan.blocks);
}

Walked result_of(ScanWalker& walker) {
  const Status status = walker.finish();
  if (status != Status::ok) return {status, {}};
  const Bytes rest = walker.rest();
  EXPECT(rest.empty() || (rest[0] == 0xFF && (rest.size() == 1 || rest[1] != 0)));
  return {status, {walker.points().begin(), walker.points().end()}};
}

Walked walk(const Scan& scan) {
  static const auto walker = std::make_unique<ScanWalker>();  // kept: tables must not leak over
  EXPECT(begin(scan, *walker));
  return result_of(*walker);
}

/// Several scans in one loop.
std::vector<Walked> walk_together(const std::vector<Scan>& scans) {
  static const auto walkers = std::make_unique<fastio::ScanWalkers>();
  class Source final : public fastio::ScanSource {
   public:
    explicit Source(const std::vector<Scan>& scans) : walked(scans.size()), scans_(scans) {}

    bool next(std::size_t number) noexcept override {
      if (next_ == scans_.size()) return false;
      which_[number] = next_;
      return begin(scans_[next_++], (*walkers)[number]);
    }
    void done(std::size_t number) noexcept override {
      walked[which_[number]] = result_of((*walkers)[number]);
    }

    std::vector<Walked> walked;

   private:
    const std::vector<Scan>& scans_;
    std::size_t next_ = 0;
    std::array<std::size_t, std::tuple_size_v<fastio::ScanWalkers>> which_{};
  };
  Source source(scans);
  walk_scans(*walkers, source);
  return source.walked;
}

/// What follows the marker of `file` at `at`, which moves behind it.
Bytes segment(const File& file, std::size_t& at) {
  const auto size = static_cast<std::size_t>(file[at + 2] << 8 | file[at + 3]);
  const Bytes payload(&file[at + 4], size - 2);
  at += 2 + size;
  return payload;
}

void take_tables(Bytes payload, Scan& scan) {
  while (!payload.empty()) {
    Codes& codes = (payload[0] >> 4 == 0 ? scan.dc : scan.ac)[payload[0] & 1];
    std::copy_n(&payload[1], 16, codes.counts.begin());
    std::size_t count = 0;
    for (const std::uint8_t each : codes.counts) count += each;
    std::copy_n(&payload[17], count, codes.symbols.begin());
    payload = payload.subspan(17 + count);
  }
}

Scan scan_of(Recipe recipe, std::size_t spacing, std::mt19937& random) {
  Scan scan;
  recipe.restart_interval = 0;
  scan.file = encode(recipe, random);
  std::size_t at = 2;
  for (std::uint8_t marker = 0; marker != 0xDA;) {
    marker = scan.file[at + 1];
    const Bytes payload = segment(scan.file, at);
    if (marker == 0xC4) take_tables(payload, scan);
  }
  scan.start = at;
  const auto mcus = [](int side, int factor) {
    return static_cast<std::size_t>((side + 8 * factor - 1) / (8 * factor));
  };
  const bool is_grey = recipe.components == 1;
  const int h = is_grey ? 1 : recipe.h;
  const int v = is_grey ? 1 : recipe.v;
  scan.grid = {mcus(recipe.width, h), mcus(recipe.height, v),
               static_cast<std::size_t>(recipe.components), spacing};
  scan.blocks.assign(static_cast<std::size_t>(h * v), {0, 0, 0});
  if (!is_grey) scan.blocks.insert(scan.blocks.end(), {{1, 1, 1}, {2, 1, 1}});
  return scan;
}

void test_sound_scans() {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Scan scan = scan_of(random_recipe(random), 1 + random() % 9, random);
    const Walked walked = walk(scan);
    EXPECT(Status::ok == walked.status);
    EXPECT(decode(scan) == walked);
  }
}

/// Tiny ones beside larger ones, sound ones beside damaged ones: some end early, more than once
/// several in the same turn.
void test_scans_in_one_loop() {
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    std::vector<Scan> scans;
    const std::size_t count = random() % 14;
    while (scans.size() < count) {
      scans.push_back(scan_of(random_recipe(random), 1 + random() % 127, random));
      File& file = scans.back().file;
      const std::size_t start = scans.back().start;
      const auto somewhere = [&] { return start + random() % (file.size() - start); };
      if (random() % 3 == 0) file[somewhere()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      if (random() % 6 == 0) file.resize(somewhere());
      if (random() % 4 == 0) scans.push_back(scans.back());
    }
    const std::vector<Walked> walked = walk_together(scans);
    for (std::size_t j = 0; j < scans.size(); ++j) EXPECT(decode(scans[j]) == walked[j]);
  }
}

void test_table_without_codes() {
  Scan scan;
  scan.file.assign(100, 0);
  scan.grid = {3, 2, 1, 1};
  scan.blocks = {{0, 0, 0}};
  EXPECT(decode(scan) == walk(scan));
  scan.dc[0].counts[0] = 1;
  EXPECT(decode(scan) == walk(scan));
  const std::vector<Walked> walked = walk_together({scan, scan, scan});
  EXPECT(decode(scan) == walked[2]);
}

void test_cut_scans() {
  std::mt19937 random(2);
  Scan scan = scan_of({20, 18, 3, 2, 2, 80, 0, true, Content::noise}, 1, random);
  const File whole = scan.file;
  for (std::size_t size = scan.start; size < whole.size(); ++size) {
    scan.file.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(decode(scan) == walk(scan));
    scan.file.insert(scan.file.end(), {0xFF, 0xFF});
    EXPECT(decode(scan) == walk(scan));
    scan.file.push_back(JPEG_EOI);
    EXPECT(decode(scan) == walk(scan));
  }
}

void test_damaged_scans() {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    Scan scan = scan_of(random_recipe(random), 1 + random() % 9, random);
    const File sound = scan.file;
    for (int j = 0; j < 60; ++j) {
      scan.file = sound;
      const auto somewhere = [&] { return scan.start + random() % (sound.size() - scan.start); };
      scan.file[somewhere()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      if (j % 3 == 0) scan.file[somewhere()] = 0xFF;
      if (j % 4 == 0) scan.file[somewhere()] = 0;
      if (j % 5 == 0) {
        scan.file.erase(scan.file.begin() + static_cast<std::ptrdiff_t>(somewhere()));
      }
      EXPECT(decode(scan) == walk(scan));
    }
  }
}

/// Any prefix code that leaves the code of ones only free.
Codes random_codes(std::uint32_t symbol_limit, std::mt19937& random) {
  Codes codes;
  std::size_t count = 0;
  std::uint32_t free_codes = 1;
  for (std::size_t length = 1; length <= 16; ++length) {
    free_codes *= 2;
    const std::uint32_t most = std::min<std::uint32_t>(free_codes - 1, 12);
    const auto here = static_cast<std::uint8_t>(random() % (most + 1));
    codes.counts[length - 1] = here;
    free_codes = std::min<std::uint32_t>(free_codes - here, 1 << 16);
    for (int i = 0; i < here; ++i) {
      codes.symbols[count++] = static_cast<std::uint8_t>(random() % symbol_limit);
    }
  }
  return codes;
}

/// Tables that no encoder makes: several codes for one symbol, values of 15 bits, runs that leave
/// the block.
void test_any_bits_by_any_tables() {
  std::mt19937 random(4);
  int sound = 0;
  std::vector<Scan> scans;
  for (int i = 0; i < 8'000; ++i) {
    Scan scan;
    scan.file.resize(64 + random() % 400);
    for (std::uint8_t& byte : scan.file) byte = static_cast<std::uint8_t>(random());
    for (std::size_t j = 0; j + 1 < scan.file.size(); ++j) {
      if (scan.file[j] == 0xFF && random() % 16 != 0) scan.file[j + 1] = 0;
    }
    scan.start = random() % 8;
    scan.grid = {1 + random() % 4, 1, 3, 1 + random() % 3};
    for (std::size_t j = 0; j < 2; ++j) {
      scan.dc[j] = random_codes(16, random);
      scan.ac[j] = random_codes(256, random);
      // Blocks come to an end more often.
      if (random() % 2 == 0) scan.ac[j].symbols[random() % 4] = 0;
    }
    scan.blocks = {{0, 0, 0}, {1, 1, 1}, {2, 0, 1}};
    const Walked walked = walk(scan);
    EXPECT(decode(scan) == walked);
    if (walked.status == Status::ok) ++sound;
    scans.push_back(std::move(scan));
    if (scans.size() < 20) continue;
    const std::vector<Walked> together = walk_together(scans);
    for (std::size_t j = 0; j < scans.size(); ++j) EXPECT(decode(scans[j]) == together[j]);
    scans.clear();
  }
  EXPECT(sound > 400);
}

}  // namespace

int main() {
  test_table_without_codes();
  test_sound_scans();
  test_scans_in_one_loop();
  test_cut_scans();
  test_damaged_scans();
  test_any_bits_by_any_tables();
  return failures;
}
