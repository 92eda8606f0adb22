/// Samples sorted by length, by counting.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fastio/permute.h"

namespace fastio {

/// Sorts windows of samples, longest first, equal lengths in the order in which they came.
///
/// Where lengths go beyond some classes (65,536, and fewer for small windows, so that counting
/// stays cheaper than the samples) they are sorted by class alone.
class LengthSorter {
 public:
  LengthSorter(std::uint32_t longest, std::size_t window)
      : longest_(longest),
        shift_(std::max(0, static_cast<int>(std::bit_width(longest)) - class_bits(window))),
        places_((longest >> shift_) + 2) {}

  /// `out` is as long as `samples`, and another place.
  void sort(std::span<const std::uint64_t> samples, std::span<std::uint64_t> out) noexcept {
    std::fill(places_.begin(), places_.end(), 0);
    for (const std::uint64_t sample : samples) ++places_[rank_of(sample) + 1];
    for (std::size_t i = 1; i < places_.size(); ++i) places_[i] += places_[i - 1];
    for (const std::uint64_t sample : samples) out[places_[rank_of(sample)]++] = sample;
  }

  /// The longest that a sample of this one's class may be.
  [[nodiscard]] std::size_t longest_like(std::uint64_t sample) const noexcept {
    const std::uint64_t next = (std::uint64_t{length_of(sample)} >> shift_) + 1;
    return static_cast<std::size_t>(std::min<std::uint64_t>((next << shift_) - 1, longest_));
  }

 private:
  static int class_bits(std::size_t window) noexcept {
    return std::clamp(static_cast<int>(std::bit_width(window)) + 2, 12, 16);
  }

  [[nodiscard]] std::size_t rank_of(std::uint64_t sample) const noexcept {
    return (longest_ >> shift_) - (length_of(sample) >> shift_);
  }

  const std::uint32_t longest_;
  const int shift_;
  std::vector<std::uint32_t> places_;
};

[[nodiscard]] inline std::uint32_t longest_of(std::span<const std::uint64_t> samples) noexcept {
  std::uint32_t longest = 0;
  for (const std::uint64_t sample : samples) longest = std::max(longest, length_of(sample));
  return longest;
}

}  // namespace fastio
