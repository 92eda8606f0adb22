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

/// 128 bits of a name, never {0, 0}: two different names of n have the same with a probability of
/// n * n / 2^129.
using NameHash = std::array<std::uint64_t, 2>;

/// The hashes of names joined by NUL, in their order. Throws std::bad_alloc only.
[[nodiscard]] std::vector<NameHash> name_hashes(std::string_view joined);

/// Two ways to know that names are unique. As long as they rise, in the order of bytes or with
/// numbers, only the last one is kept. Otherwise a table keeps the hash of each, in 23 to 46
/// bytes; whoever has no memory for more takes them out as a sorted run.
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

  /// How many names the table has.
  [[nodiscard]] std::size_t size() const noexcept { return used_; }

  /// Empties the table, and returns the hashes that it had, sorted.
  [[nodiscard]] std::vector<NameHash> take();

 private:
  void reserve(std::size_t count);
  [[nodiscard]] std::size_t slot_of(const NameHash& hash) const noexcept;

  std::vector<NameHash> slots_;  // {0, 0}: free
  std::size_t used_ = 0;
  std::string last_;
  bool by_bytes_ = true;
  bool by_numbers_ = true;
};

}  // namespace fastio
