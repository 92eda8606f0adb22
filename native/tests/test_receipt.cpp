// The number of a set of samples: pinned values, and what it does not depend on.
#include <cstdint>
#include <vector>

#include "check.h"
#include "core/receipt.h"

namespace {

using Indices = std::vector<std::int64_t>;
using Checksums = std::vector<std::uint32_t>;

/// Numbers are kept in states and logs, so they must never change.
void test_pinned() {
  EXPECT(fastio::receipt_sum(Indices{}, Checksums{}, 7) == 0);
  // The first number of SplitMix64 with the seed 0.
  EXPECT(fastio::receipt_sum(Indices{0x7F4A7C15}, Checksums{0x9E3779B9}, 0) == 0xE220A8397B1DCDAFU);
  EXPECT(fastio::receipt_sum(Indices{5}, {}, 7) ==
         fastio::receipt_sum(Indices{5}, Checksums{0}, 7));
}

void test_sums_of_parts_add_up() {
  const std::uint64_t whole = fastio::receipt_sum(Indices{3, 1, 2}, Checksums{30, 10, 20}, 7);
  EXPECT(fastio::receipt_sum(Indices{1, 2, 3}, Checksums{10, 20, 30}, 7) == whole);
  EXPECT(fastio::receipt_sum(Indices{1}, Checksums{10}, 7) +
             fastio::receipt_sum(Indices{2, 3}, Checksums{20, 30}, 7) ==
         whole);
  EXPECT(fastio::receipt_sum(Indices{1, 2, 3}, Checksums{20, 10, 30}, 7) != whole);
  EXPECT(fastio::receipt_sum(Indices{1, 2, 3}, Checksums{10, 20, 31}, 7) != whole);
  EXPECT(fastio::receipt_sum(Indices{1, 2, 3}, Checksums{10, 20, 30}, 8) != whole);
  EXPECT(fastio::receipt_sum(Indices{1, 2, 2}, Checksums{10, 20, 20}, 7) != whole);
}

}  // namespace

int main() {
  test_pinned();
  test_sums_of_parts_add_up();
  return failures;
}
