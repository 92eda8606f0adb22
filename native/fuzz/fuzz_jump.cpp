// libFuzzer target: regions decoded by jump tables, true, damaged and forged.
//
// The first bytes say which region, and what is changed in the table; the rest is the file. By its
// own table, and by one that its checksum gives away, a sound file has the pixels that it has
// without. A forged one with a checksum of its own must not lead outside memory, and what it says
// of a whole picture, or of one changed since, changes nothing.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "jpeg/jpeg.h"
#include "jpeg/jump_table.h"
#include "pictures/probe.h"

namespace {

using fastio::Bytes;
using fastio::Status;

constexpr std::size_t recipe_bytes = 16;
constexpr std::int64_t most_pixels = 1 << 16;

struct Part {
  Status status;
  std::vector<std::uint8_t> pixels;

  bool operator==(const Part&) const = default;
};

Part part_of(Bytes file, const fastio::Region& region, Bytes table) {
  static fastio::JpegDecoder decoder;
  fastio::PixelView view{};
  Part part{decoder.decode_part(file, {region, region, 3, 1, fastio::Intervals(table)}, view), {}};
  for (std::size_t y = 0; y < region.height && part.status == Status::ok; ++y) {
    const std::uint8_t* row = view.data + y * view.stride;
    part.pixels.insert(part.pixels.end(), row, row + 3 * region.width);
  }
  return part;
}

Part whole_of(Bytes file, const fastio::ImageInfo& info, Bytes table) {
  static fastio::JpegDecoder decoder;
  const auto width = static_cast<std::size_t>(info.width);
  const auto height = static_cast<std::size_t>(info.height);
  Part whole{Status::ok, std::vector<std::uint8_t>(width * height * 3)};
  whole.status =
      decoder.decode(file, {whole.pixels.data(), height, width, 3}, fastio::Intervals(table));
  if (whole.status != Status::ok) whole.pixels.clear();
  return whole;
}

/// Points of the fuzzer's, in a table whose checksum is right.
fastio::Blob forged(Bytes file, const fastio::ImageInfo& info, const std::uint8_t* recipe) {
  const auto mcu = static_cast<std::size_t>(8 << recipe[5] % 3);
  fastio::ScanGrid grid{(static_cast<std::size_t>(info.width) + mcu - 1) / mcu,
                        (static_cast<std::size_t>(info.height) + mcu - 1) / mcu,
                        info.channels == 1 ? 1U : 3U, 1U + recipe[6] % 8U};
  std::vector<fastio::ScanPoint> points(grid.points());
  points[0].bit = 8 * (recipe[7] | std::uint64_t{recipe[8]} << 8);
  for (std::size_t i = 1; i < points.size(); ++i) {
    points[i].bit = points[i - 1].bit + recipe[9] * (recipe[10] & i);
    for (std::size_t c = 0; c < grid.components; ++c) {
      points[i].dc[c] = static_cast<std::int32_t>(recipe[11] * i) - recipe[12];
    }
  }
  fastio::Blob table;
  if (points[0].bit / 8 > file.size() || !write_jump_table(points, grid, file, table)) return {};
  return table;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fastio::JpegDecoder noting;
  if (size < recipe_bytes) return 0;
  const Bytes file(data + recipe_bytes, size - recipe_bytes);
  const fastio::ImageInfo info = fastio::probe_image(file);
  if (info.status != Status::ok || info.kind != fastio::ImageKind::jpeg) return 0;
  if (std::int64_t{info.height} * info.width > most_pixels) return 0;
  const auto within = [](std::uint8_t low, std::uint8_t high, std::int32_t side) {
    const auto whole = static_cast<std::size_t>(side);
    const std::size_t start = low * whole / 256;
    return std::pair{start, 1 + high * (whole - start - 1) / 256};
  };
  const auto [x, width] = within(data[0], data[1], info.width);
  const auto [y, height] = within(data[2], data[3], info.height);
  const fastio::Region region{x, y, width, height};
  const Part plain = part_of(file, region, {});
  const Part whole = whole_of(file, info, {});
  const fastio::Blob false_table = forged(file, info, data);
  (void)part_of(file, region, false_table.bytes());
  if (whole != whole_of(file, info, false_table.bytes())) std::abort();
  (void)part_of(file, region, Bytes(data, recipe_bytes));
  fastio::NotedPoints noted;
  noting.note_points({&file, 1}, 1 + data[4] % fastio::ScanGrid::most_spacing, &noted);
  if (noted.status != Status::ok) return 0;
  fastio::Blob& table = noted.table;
  if (plain != part_of(file, region, table.bytes())) std::abort();
  if (whole != whole_of(file, info, table.bytes())) std::abort();
  std::vector<std::uint8_t> changed(file.begin(), file.end());
  changed[(data[15] | std::size_t{data[13]} << 8) % changed.size()] ^= data[14];
  if (whole_of(changed, info, {}) != whole_of(changed, info, table.bytes())) std::abort();
  const std::size_t at = (data[13] | std::size_t{data[14]} << 8) % table.size();
  table.data()[at] ^= data[15];
  if (plain != part_of(file, region, table.bytes())) std::abort();
  return 0;
}
