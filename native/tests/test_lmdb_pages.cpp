// Pages hold exactly what they announce, every value lies where its start says, and pieces of any
// length give the same bytes.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "files/lmdb_pages.h"

namespace {

using fastio::Bytes;
using fastio::LmdbPages;

constexpr std::size_t head = 2 * LmdbPages::page_bytes;

struct Written {
  std::vector<std::uint8_t> file;
  std::vector<std::int64_t> starts;
  std::vector<LmdbPages::Leaf> leaves;
};

/// All samples in pieces of `piece` samples, each into a buffer of exactly the announced size.
Written write(const std::vector<std::string>& suffixes, const std::vector<Bytes>& values,
              std::size_t piece) {
  LmdbPages pages(suffixes);
  Written result;
  result.file.resize(head);
  const auto add = [&](const std::vector<std::uint8_t>& out) {
    result.file.insert(result.file.end(), out.begin(), out.end());
    const auto starts = pages.take_starts();
    const auto leaves = pages.take_leaves();
    EXPECT(starts.size() % suffixes.size() == 0);
    result.starts.insert(result.starts.end(), starts.begin(), starts.end());
    result.leaves.insert(result.leaves.end(), leaves.begin(), leaves.end());
  };
  const std::size_t step = piece * suffixes.size();
  for (std::size_t at = 0; at < values.size(); at += step) {
    const auto part = std::span(values).subspan(at, std::min(step, values.size() - at));
    std::vector<std::uint8_t> out(pages.appended_bytes(part));
    pages.append(part, out.data());
    add(out);
  }
  std::vector<std::uint8_t> out(pages.finished_bytes());
  pages.finish(out.data());
  add(out);
  return result;
}

std::uint64_t number(const std::vector<std::uint8_t>& file, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | file[at + i];
  return value;
}

/// Walks the leaves as a reader does; how many entries have their key and their value.
std::size_t good_entries(const Written& written, const std::vector<std::string>& suffixes,
                         const std::vector<Bytes>& values) {
  std::size_t entry = 0;
  for (const auto& [first, page] : written.leaves) {
    const std::size_t at = static_cast<std::size_t>(page) * LmdbPages::page_bytes;
    EXPECT(static_cast<std::size_t>(first) == entry);
    EXPECT(number(written.file, at, 8) == static_cast<std::uint64_t>(page));
    const std::size_t nodes = (number(written.file, at + 12, 2) - 16) / 2;
    for (std::size_t i = 0; i < nodes; ++i, ++entry) {
      const std::size_t node = at + number(written.file, at + 16 + 2 * i, 2);
      const std::size_t key_bytes = number(written.file, node + 6, 2);
      const std::string digits = std::to_string(entry / suffixes.size());
      const std::string key =
          std::string(10 - digits.size(), '0') + digits + suffixes[entry % suffixes.size()];
      EXPECT(std::string(
                 written.file.begin() + static_cast<std::ptrdiff_t>(node + 8),
                 written.file.begin() + static_cast<std::ptrdiff_t>(node + 8 + key_bytes)) == key);
      const Bytes value = values[entry];
      EXPECT(number(written.file, node, 4) == value.size());
      std::size_t start = node + 8 + key_bytes;
      if (number(written.file, node + 4, 2) == 1) {
        const std::size_t run = number(written.file, start, 8);
        EXPECT(number(written.file, run * LmdbPages::page_bytes, 8) == run);
        start = run * LmdbPages::page_bytes + 16;
      }
      EXPECT(static_cast<std::size_t>(written.starts[entry]) == start);
      EXPECT(value.empty() ||
             std::memcmp(written.file.data() + start, value.data(), value.size()) == 0);
    }
  }
  return entry;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  const std::vector<std::vector<std::string>> all_suffixes = {
      {"/image"}, {"/a", "/b", "/c"}, {std::string(LmdbPages::max_suffix_bytes, 'x')}};
  for (const auto& suffixes : all_suffixes) {
    const std::size_t edge = 2038 - 8 - 10 - suffixes[0].size();  // the longest inline value
    std::vector<std::vector<std::uint8_t>> contents;
    for (std::size_t size : {std::size_t{0}, std::size_t{1}, edge - 1, edge, edge + 1, edge + 2,
                             std::size_t{4079}, std::size_t{4080}, std::size_t{4081},
                             std::size_t{8176}, std::size_t{8177}, std::size_t{70000}}) {
      contents.emplace_back(size);
    }
    while (contents.size() < 3000) contents.emplace_back(random() % 2500);
    for (auto& content : contents) {
      for (auto& byte : content) byte = static_cast<std::uint8_t>(random());
    }
    const std::vector<Bytes> values(contents.begin(), contents.end());
    const Written whole = write(suffixes, values, values.size());
    EXPECT(good_entries(whole, suffixes, values) == values.size());
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{512}}) {
      const Written pieces = write(suffixes, values, piece);
      EXPECT(pieces.file == whole.file && pieces.starts == whole.starts);
    }
  }

  LmdbPages none({});
  EXPECT(none.appended_bytes({}) == 0 && none.finished_bytes() == 0);
  none.append({}, nullptr);
  none.finish(nullptr);
  EXPECT(none.take_leaves().empty() && none.take_starts().empty());
  LmdbPages empty({"/image"});
  empty.finish(nullptr);
  EXPECT(empty.take_leaves().empty() && empty.take_starts().empty());
  return failures;
}
