/// Names of samples that have been seen, to find one that comes twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fastio {

/// -1, 0 or 1: `a` before, equal to or behind `b`, where runs of digits count as numbers
/// (x9 < x10), and equal numbers with other leading zeros are told apart by their bytes. A total
/// order of all strings.
[[nodiscard]] int compare_natural(std::string_view a, std::string_view b) noexcept;

/// Two ways to know that names are unique. As long as they rise, in the order of bytes or with
/// numbers, only the last one is kept. Otherwise a table keeps 128 bits of each, in 23 to 46 bytes:
/// two different names of n are taken for one with a probability of n * n / 2^129.
///
/// Names come joined by NUL. Not thread safe. Throws std::bad_alloc only.
class KeySet {
 public:
  /// Whether the names rise, each above the one before and above all that rose before. They
  /// are accepted all or none; after a "no" no other will ever rise.
  [[nodiscard]] bool rise(std::string_view joined);

  /// Puts names into the table; the place of the first that is there already, and then none of
  /// them is put there.
  [[nodiscard]] std::optional<std::size_t> insert(std::string_view joined);

 private:
  using Hash = std::array<std::uint64_t, 2>;  // never {0, 0}, which is a free slot

  void reserve(std::size_t count);
  [[nodiscard]] std::size_t slot_of(const Hash& hash) const noexcept;

  std::vector<Hash> slots_;
  std::size_t used_ = 0;
  std::string last_;
  bool by_bytes_ = true;
  bool by_numbers_ = true;
};

}  // namespace fastio
