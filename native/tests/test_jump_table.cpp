// Parts decoded from points of MCUs have the pixels of the whole, whatever the points say.
#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "check.h"
#include "jpeg/jpeg.h"
#include "jpeg/jump_table.h"
#include "jpeg_file.h"

namespace {

using fastio::Bytes;
using fastio::ScanGrid;
using fastio::ScanPoint;
using fastio::Status;

fastio::Blob table_of(const File& file, std::size_t spacing, Status expected = Status::ok) {
  static fastio::JpegDecoder decoder;
  fastio::NotedPoints noted;
  const Bytes bytes(file);
  decoder.note_points({&bytes, 1}, spacing, &noted);
  EXPECT(expected == noted.status);
  EXPECT((expected == Status::ok) == fastio::is_jump_table(noted.table.bytes()));
  return std::move(noted.table);
}

struct Part {
  Status status;
  File pixels;

  bool operator==(const Part&) const = default;
};

Part part_of(const File& file, const fastio::Region& region, Bytes table, std::size_t shrink = 1) {
  static fastio::JpegDecoder decoder;
  fastio::PixelView view{};
  const fastio::Region box{region.x * shrink, region.y * shrink, 1, 1};
  Part part{decoder.decode_part(file, {box, region, 3, shrink, fastio::Intervals(table)}, view),
            {}};
  for (std::size_t y = 0; y < region.height && part.status == Status::ok; ++y) {
    const std::uint8_t* row = view.data + y * view.stride;
    part.pixels.insert(part.pixels.end(), row, row + 3 * region.width);
  }
  return part;
}

fastio::Region random_region(std::size_t width, std::size_t height, std::mt19937& random) {
  const auto [x, y] = std::array{random() % width, random() % height};
  return {x, y, 1 + random() % (width - x), 1 + random() % (height - y)};
}

Recipe without_markers(std::mt19937& random) {
  Recipe recipe = random_recipe(random);
  recipe.width *= 2;
  recipe.restart_interval = 0;
  return recipe;
}

void test_parts_are_equal() {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Recipe recipe = without_markers(random);
    const File file = encode(recipe, random);
    const fastio::Blob table = table_of(file, 1 + random() % 9);
    const std::size_t shrink = i % 4 == 0 ? 2 : 1;
    const auto shrunk = [shrink](int side) {
      return (static_cast<std::size_t>(side) + shrink - 1) / shrink;
    };
    for (int j = 0; j < 4; ++j) {
      const auto region = random_region(shrunk(recipe.width), shrunk(recipe.height), random);
      const Part plain = part_of(file, region, {}, shrink);
      EXPECT(Status::ok == plain.status);
      EXPECT(plain == part_of(file, region, table.bytes(), shrink));
    }
  }
}

Part whole_of(const File& file, const Recipe& recipe, Bytes table) {
  static fastio::JpegDecoder decoder;
  const auto width = static_cast<std::size_t>(recipe.width);
  const auto height = static_cast<std::size_t>(recipe.height);
  Part whole{Status::ok, File(width * height * 3)};
  whole.status =
      decoder.decode(file, {whole.pixels.data(), height, width, 3}, fastio::Intervals(table));
  if (whole.status != Status::ok) whole.pixels.clear();
  return whole;
}

void test_whole_pictures_are_equal() {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    const Recipe recipe = without_markers(random);
    const File file = encode(recipe, random);
    const fastio::Blob table = table_of(file, 1 + random() % 9);
    const Part plain = whole_of(file, recipe, {});
    EXPECT(Status::ok == plain.status);
    EXPECT(plain == whole_of(file, recipe, table.bytes()));
  }
}

/// Rows that are decoded together tell of damage in either as rows on their own do.
void test_damage_in_whole_pictures_is_seen() {
  std::mt19937 random(8);
  for (int i = 0; i < 60; ++i) {
    const Recipe recipe = without_markers(random);
    const File file = encode(recipe, random);
    const fastio::Blob table = table_of(file, 1 + random() % 9);
    for (int j = 0; j < 40; ++j) {
      File damaged = file;
      const auto somewhere = [&] { return random() % (damaged.size() - 64) + 32; };
      damaged[somewhere()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      if (j % 3 == 0) damaged[somewhere()] = 0xFF;
      if (j % 5 == 0) damaged.resize(somewhere());
      EXPECT(whole_of(damaged, recipe, {}) == whole_of(damaged, recipe, table.bytes()));
    }
  }
}

/// What is passed over is not looked at: that is how it is known that points are used.
void test_unwanted_mcus_are_passed_over() {
  std::mt19937 random(2);
  const File file = encode({160, 96, 3, 1, 1, 80, 0, true, Content::noise}, random);
  const fastio::Blob table = table_of(file, 4);
  const fastio::Region right_bottom{120, 48, 16, 16};
  const Part expected = part_of(file, right_bottom, {});
  File damaged = file;
  std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(file.size() / 4), 20,
              std::uint8_t{0xFE});
  EXPECT(Status::ok != part_of(damaged, right_bottom, {}).status);
  EXPECT(expected == part_of(damaged, right_bottom, table.bytes()));
}

/// A table with one wrong point, and a checksum as if it were true. Not the first one, whose values
/// no table holds.
fastio::Blob forged(const File& file, const ScanGrid& grid, std::vector<ScanPoint> points,
                    std::mt19937& random) {
  ScanPoint& point = points[1 + random() % (points.size() - 1)];
  switch (random() % 4) {
    case 0: point.bit += random() % 64; break;
    case 1: point.bit -= std::min<std::uint64_t>(point.bit - points[0].bit, random() % 64); break;
    case 2: point.dc[random() % grid.components] += 1 + static_cast<int>(random() % 9); break;
    default: point = points[random() % points.size()];
  }
  fastio::Blob table;
  EXPECT(write_jump_table(points, grid, file, table));
  return table;
}

std::vector<ScanPoint> points_of(const File& file, const ScanGrid& grid, Bytes words) {
  fastio::JumpTable table;
  EXPECT(table.read(words, file, grid, grid.rows - 1));
  const ScanPoint* first = &table.at(0, 0);
  return {first, first + grid.points()};
}

void test_one_wrong_point_changes_nothing() {
  std::mt19937 random(3);
  const File file = encode({150, 70, 3, 2, 2, 70, 0, true, Content::noise}, random);
  const ScanGrid grid{10, 5, 3, 2};
  const auto points = points_of(file, grid, table_of(file, grid.spacing).bytes());
  for (int i = 0; i < 3000; ++i) {
    const fastio::Blob table = forged(file, grid, points, random);
    const auto region = random_region(150, 70, random);
    EXPECT(part_of(file, region, {}) == part_of(file, region, table.bytes()));
    const fastio::Region whole{0, 0, 150, 70};
    EXPECT(part_of(file, whole, {}) == part_of(file, whole, table.bytes()));
  }
}

void test_damaged_tables_change_nothing() {
  std::mt19937 random(4);
  const File file = encode({150, 70, 3, 1, 1, 70, 0, true, Content::noise}, random);
  const File other = encode({150, 70, 3, 1, 1, 70, 0, true, Content::noise}, random);
  const fastio::Region region{80, 30, 40, 30};
  const Part expected = part_of(file, region, {});
  const fastio::Blob table = table_of(file, 4);
  EXPECT(expected == part_of(file, region, table_of(other, 4).bytes()));
  for (std::size_t size = 0; size < table.size(); ++size) {
    EXPECT(expected == part_of(file, region, table.bytes().first(size)));
  }
  for (int i = 0; i < 1000; ++i) {
    File flipped(table.bytes().begin(), table.bytes().end());
    flipped[random() % flipped.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
    EXPECT(expected == part_of(file, region, flipped));
  }
}

void test_tables_come_back() {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const ScanGrid grid{1 + random() % 40, 1 + random() % 9, 1 + random() % 4, 1 + random() % 12};
    const File file(64 + random() % 100, std::uint8_t{1});
    const unsigned range = 1U << random() % 32;
    std::vector<ScanPoint> points(grid.points());
    points[0].bit = 8 * (random() % 64);
    for (std::size_t p = 1; p < points.size(); ++p) {
      points[p].bit = points[p - 1].bit + random() % range;
      for (std::size_t c = 0; c < grid.components; ++c) {
        points[p].dc[c] = static_cast<std::int32_t>(random() % range - range / 2);
      }
    }
    fastio::Blob table;
    EXPECT(write_jump_table(points, grid, file, table));
    EXPECT(points == points_of(file, grid, table.bytes()));
  }
}

void test_damage_is_reported() {
  std::mt19937 random(6);
  const File file = encode({40, 40, 3, 2, 2, 80, 0, false, Content::noise}, random);
  table_of(File(file.begin(), file.end() - 2), 8, Status::unsupported);
  table_of(File(file.begin(), file.end() - 3), 8, Status::truncated);
  table_of(File(file.begin(), file.end() - 99), 8, Status::truncated);
  File damaged = file;
  damaged[file.size() - 99] = 0xFF;
  damaged[file.size() - 98] = 0xD9;
  table_of(damaged, 8, Status::corrupt);
  table_of(encode({40, 40, 3, 2, 2, 80, 2, false, Content::noise}, random), 8, Status::unsupported);
}

}  // namespace

int main() {
  test_tables_come_back();
  test_parts_are_equal();
  test_whole_pictures_are_equal();
  test_damage_in_whole_pictures_is_seen();
  test_unwanted_mcus_are_passed_over();
  test_one_wrong_point_changes_nothing();
  test_damaged_tables_change_nothing();
  test_damage_is_reported();
  return failures;
}
