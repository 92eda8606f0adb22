/// What a cache of a certain size holds that gives up what was used least recently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fastio {

/// Simulates such a cache of samples; no bytes are kept. Not thread safe. Throws std::bad_alloc
/// only, when it is made.
class RecentlyUsed {
 public:
  /// `sizes` are the bytes of each sample, none negative and fewer than 2^32 - 1 of them. A sample
  /// of more than `capacity` bytes is never kept.
  RecentlyUsed(std::vector<std::int64_t> sizes, std::uint64_t capacity);

  /// How many samples there are.
  [[nodiscard]] std::size_t count() const noexcept { return sizes_.size(); }

  /// Uses these samples, each below `count`, in turn. Returns the bytes of those that it did not
  /// hold at that moment; it holds them from then on.
  std::uint64_t use(std::span<const std::int64_t> samples) noexcept;

 private:
  void unlink(std::uint32_t sample) noexcept;
  void put_first(std::uint32_t sample) noexcept;

  // A ring in the order of use; the number behind the last sample stands for its two ends.
  std::vector<std::int64_t> sizes_;
  std::vector<std::uint32_t> newer_;
  std::vector<std::uint32_t> older_;  // the sample itself where it is not held
  std::uint64_t capacity_;
  std::uint64_t held_ = 0;  // bytes
};

}  // namespace fastio
