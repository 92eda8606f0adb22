// What is read ahead: whole blocks where much of them is needed, single spans elsewhere.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.h"
#include "files/readahead.h"

namespace {

using fastio::Stretch;

constexpr std::uint64_t block = 4 << 20;
constexpr std::uint64_t base = 1000 * block;

Stretch at(std::uint64_t start, std::uint64_t size) {
  return {base + start, base + start + size};
}

void expect(std::vector<Stretch> spans, const std::vector<Stretch>& expected) {
  const std::vector<Stretch> found = fastio::stretches(spans);
  EXPECT(found.size() == expected.size());
  if (found.size() != expected.size()) return;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT(found[i].first == base + expected[i].first);
    EXPECT(found[i].last == base + expected[i].last);
  }
}

void test_nothing() {
  expect({}, {});
  expect({at(5, 0)}, {});
}

void test_far_spans_alone() {
  expect({at(500'000, 3000), at(100, 3000)}, {{100, 3100}, {500'000, 503'000}});
}

void test_near_spans_together() {
  expect({at(100, 3000), at(33'000, 3000), at(33'000, 10)}, {{100, 36'000}});
}

void test_dense_block_whole() {
  std::vector<Stretch> spans;
  for (std::uint64_t i = 0; i < 8; ++i) spans.push_back(at(block + i * (block / 8), 100'000));
  expect(spans, {{block, block + 7 * (block / 8) + 100'000}});
}

void test_neighbouring_blocks_together() {
  expect({at(0, block - 10), at(block + 10, block - 10)}, {{0, 2 * block}});
}

void test_span_over_several_blocks() {
  expect({at(10, 3 * block), at(block, 5), at(3 * block, 100)}, {{10, 3 * block + 100}});
}

}  // namespace

int main() {
  test_nothing();
  test_far_spans_alone();
  test_near_spans_together();
  test_dense_block_whole();
  test_neighbouring_blocks_together();
  test_span_over_several_blocks();
  return failures;
}
