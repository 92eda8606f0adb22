// KeySet beside std::set: names that rise, that do not, and that come twice.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "files/key_set.h"

namespace {

using fastio::compare_natural;
using fastio::KeySet;

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : std::string(1, '\0')) + name;
  return all;
}

void test_natural_order() {
  const std::vector<std::string> rising{"a",   "a1",    "a2",      "a9b", "a010", "a10",
                                        "a11", "a1000", "a1000#0", "ab",  "b"};
  for (std::size_t i = 0; i < rising.size(); ++i) {
    for (std::size_t j = 0; j < rising.size(); ++j) {
      const int expected = i < j ? -1 : (i > j ? 1 : 0);
      EXPECT(compare_natural(rising[i], rising[j]) == expected);
    }
  }
  EXPECT(compare_natural("", "0") < 0);
  EXPECT(compare_natural("\xc3", "z") > 0);  // bytes, not signed characters
}

void test_natural_order_is_total() {
  std::vector<std::string> all;
  for (const char a : {'0', '1', 'x'}) {
    for (const char b : {'0', '9', '/'}) {
      for (const char c : {'1', '0', 'y'}) all.push_back({a, b, c});
    }
  }
  for (const auto& a : all) {
    for (const auto& b : all) {
      EXPECT((compare_natural(a, b) == 0) == (a == b));
      EXPECT(compare_natural(a, b) == -compare_natural(b, a));
      for (const auto& c : all) {
        if (compare_natural(a, b) < 0 && compare_natural(b, c) < 0) {
          EXPECT(compare_natural(a, c) < 0);
        }
      }
    }
  }
}

void test_rising() {
  KeySet numbers;
  EXPECT(numbers.rise(joined({"x8", "x9", "x10"})));
  EXPECT(numbers.rise("x11"));
  EXPECT(!numbers.rise("x11"));
  EXPECT(!numbers.rise("x12"));  // never again

  KeySet bytes;
  EXPECT(bytes.rise(joined({"x10", "x9"})));
  EXPECT(!bytes.rise(joined({"y1", "x1"})));

  KeySet neither;
  EXPECT(!neither.rise(joined({"x10", "x9", "x90", "x12"})));
}

void test_a_name_that_comes_twice_takes_its_batch_back() {
  KeySet set;
  EXPECT(!set.insert(joined({"a", "b"})));
  EXPECT(set.insert(joined({"c", "d", "b", "e"})) == 2U);
  EXPECT(!set.insert(joined({"c", "d", "e"})));
  EXPECT(set.insert(joined({"f", "f"})) == 1U);
  EXPECT(!set.insert("f"));
}

void test_many_names_against_a_set() {
  KeySet set;
  std::set<std::string> expected;
  std::uint32_t random = 1;
  for (int i = 0; i < 20000; ++i) {
    random = random * 1664525 + 1013904223;
    const std::string name = "folder/" + std::to_string(random >> 18);
    EXPECT(set.insert(name).has_value() == !expected.insert(name).second);
  }
  for (const std::string& name : expected) EXPECT(set.insert(name) == 0U);
}

}  // namespace

int main() {
  test_natural_order();
  test_natural_order_is_total();
  test_rising();
  test_a_name_that_comes_twice_takes_its_batch_back();
  test_many_names_against_a_set();
  return failures;
}
