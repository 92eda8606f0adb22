/// Leaf and overflow pages of the LMDB 0.9 file format; drawn in fastio/store/formats/lmdb.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"

namespace fastio {

/// Turns samples, in their order, into the pages of a file from page 2 on.
///
/// Values are entries, counted over all samples and, within each, over the fields; the key of one
/// is the sample's number in ten digits and the field's suffix. Runs of long values are written
/// at once, a leaf when the next entry does not fit: no byte is written twice. Memory does not
/// grow with the file if starts and leaves are taken after each `append`. Not thread-safe.
class LmdbPages {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t digits = 10;
  static constexpr std::size_t max_suffix_bytes = 511 - digits;
  static constexpr std::uint64_t max_value_bytes = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint64_t max_samples = 10'000'000'000;

  /// A leaf: its first entry, and its page.
  using Leaf = std::array<std::int64_t, 2>;

  /// One suffix a field, sorted, none longer than `max_suffix_bytes`.
  explicit LmdbPages(std::vector<std::string> suffixes) noexcept : suffixes_(std::move(suffixes)) {}

  [[nodiscard]] std::size_t fields() const noexcept { return suffixes_.size(); }

  /// Pages of values so far, leaves not counted.
  [[nodiscard]] std::uint64_t overflow_pages() const noexcept { return overflow_pages_; }

  /// How many samples there may still be.
  [[nodiscard]] std::uint64_t samples_left() const noexcept {
    return suffixes_.empty() ? max_samples : max_samples - entries() / suffixes_.size();
  }

  /// The exact size of what `append` would write.
  [[nodiscard]] std::size_t appended_bytes(std::span<const Bytes> values) const noexcept;

  /// Adds whole samples, `fields()` values each, none longer than `max_value_bytes`. Writes the
  /// pages that are finished to `out`, `appended_bytes(values)` of them. Retains nothing.
  void append(std::span<const Bytes> values, std::uint8_t* out);

  /// The size of what `finish` would write.
  [[nodiscard]] std::size_t finished_bytes() const noexcept { return has_leaf() ? page_bytes : 0; }

  /// Writes the last leaf to `out`. Nothing may be added afterwards.
  void finish(std::uint8_t* out);

  /// Where in the file the value of each entry begins, from the first one that was not taken
  /// before: as many whole samples as are known, after `finish` all. They are forgotten here.
  [[nodiscard]] std::vector<std::int64_t> take_starts();

  /// The leaves that were written since the last call. They are forgotten here.
  [[nodiscard]] std::vector<Leaf> take_leaves() noexcept { return std::exchange(leaves_, {}); }

 private:
  static constexpr std::size_t page_header = 16;

  /// What an entry takes.
  struct Shape {
    bool is_inline;        ///< its value lies in the leaf
    std::size_t node;      ///< bytes in the leaf, the pointer to it aside
    std::size_t overflow;  ///< pages of its run
  };

  [[nodiscard]] Shape shape(std::size_t field, std::size_t value_bytes) const noexcept;
  [[nodiscard]] std::size_t entries() const noexcept { return taken_ + starts_.size(); }
  [[nodiscard]] bool has_leaf() const noexcept { return lower_ > page_header; }
  std::uint8_t* put(Bytes value, std::uint8_t* out);
  std::uint8_t* put_run(Bytes value, std::size_t pages, std::uint8_t* out) noexcept;
  std::uint8_t* put_leaf(std::uint8_t* out);

  const std::vector<std::string> suffixes_;
  std::uint64_t next_page_ = 2;
  std::uint64_t overflow_pages_ = 0;
  std::size_t taken_ = 0;  // entries whose starts were taken
  std::vector<std::int64_t>
      starts_;  // of the others; inline values of the leaf below: their place in it
  std::vector<Leaf> leaves_;
  std::size_t first_entry_ = 0;  // of the leaf below
  std::size_t lower_ = page_header;
  std::size_t upper_ = page_bytes;
  std::array<std::uint8_t, page_bytes> leaf_{};
};

}  // namespace fastio
