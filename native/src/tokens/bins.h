/// Bins that are being packed (inside the core only): what packing by one budget and by two share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"

namespace fastio {

inline constexpr std::uint32_t none = 0xFFFFFFFF;

/// A set of numbers below a limit that finds the smallest from some number on.
class NumberSet {
 public:
  explicit NumberSet(std::size_t limit)
      : words_(limit / 64 + 2), summary_(words_.size() / 64 + 2) {}

  void insert(std::size_t number) noexcept {
    words_[number / 64] |= std::uint64_t{1} << number % 64;
    summary_[number / 64 / 64] |= std::uint64_t{1} << number / 64 % 64;
  }

  void remove(std::size_t number) noexcept {
    words_[number / 64] &= ~(std::uint64_t{1} << number % 64);
    if (words_[number / 64] == 0) {
      summary_[number / 64 / 64] &= ~(std::uint64_t{1} << number / 64 % 64);
    }
  }

  /// The smallest number not below `least`; `none` where there is none.
  [[nodiscard]] std::uint32_t from(std::size_t least) const noexcept {
    const std::uint64_t here = words_[least / 64] >> least % 64;
    if (here != 0) return static_cast<std::uint32_t>(least) + first_bit(here);
    const std::size_t next = least / 64 + 1;
    std::size_t at = next / 64;
    std::uint64_t found = summary_[at] >> next % 64 << next % 64;
    while (found == 0) {
      if (++at == summary_.size()) return none;
      found = summary_[at];
    }
    const std::size_t word = at * 64 + first_bit(found);
    return static_cast<std::uint32_t>(word * 64) + first_bit(words_[word]);
  }

 private:
  static std::uint32_t first_bit(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(std::countr_zero(word));
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> summary_;
};

/// Bins with their samples, and what is free of each.
class PackedBins {
 public:
  void clear() noexcept {
    samples_.clear();
    bins_.clear();
  }

  /// Begins another bin.
  void open(std::size_t capacity) { bins_.push_back({capacity, samples_.size(), samples_.size()}); }

  /// Puts a sample that fits, and takes so much, into the bin that was opened last.
  void put(std::uint64_t sample, std::size_t size) {
    samples_.push_back(sample);
    ++bins_.back().stop;
    bins_.back().free -= size;
  }

  /// The same of a sample that takes its length.
  void put(std::uint64_t sample) { put(sample, length_of(sample)); }

  /// Lets the fullest come first.
  void sort() {
    std::stable_sort(bins_.begin(), bins_.end(),
                     [](const Bin& a, const Bin& b) { return a.free < b.free; });
  }

  [[nodiscard]] std::size_t size() const noexcept { return bins_.size(); }
  [[nodiscard]] std::size_t free() const noexcept { return bins_.back().free; }
  [[nodiscard]] std::span<const std::uint64_t> samples(std::size_t bin) const noexcept {
    return {samples_.data() + bins_[bin].start, bins_[bin].stop - bins_[bin].start};
  }

 private:
  struct Bin {
    std::size_t free;
    std::size_t start;
    std::size_t stop;
  };

  std::vector<std::uint64_t> samples_;
  std::vector<Bin> bins_;
};

/// Packs one window of samples after the other: `pack(window, is_last)` returns its bins, fullest
/// first. The samples of the emptiest ones, at least one bin, join the next window, so that every
/// window but the last gives a multiple of `world_size` bins. Leaves the samples' indices alone in
/// their place, bin behind bin, and returns where each begins, with the end of the last.
template <typename Pack>
std::vector<std::int64_t> pack_windows(std::span<std::uint64_t> samples, std::size_t window_size,
                                       std::size_t world_size, Pack&& pack) {
  std::vector<std::int64_t> cuts{0};
  std::vector<std::uint64_t> packed;
  std::size_t reach = window_size;
  for (std::size_t done = 0; done < samples.size();) {
    const auto window = samples.subspan(done, std::min(reach, samples.size() - done));
    const bool is_last = done + window.size() == samples.size();
    const PackedBins& bins = pack(window, is_last);
    const std::size_t kept = is_last ? bins.size() : (bins.size() - 1) / world_size * world_size;
    packed.clear();
    for (std::size_t bin = 0; bin < bins.size(); ++bin) {
      for (const std::uint64_t sample : bins.samples(bin)) {
        packed.push_back(bin < kept ? index_of(sample) : sample);
      }
      if (bin < kept) cuts.push_back(static_cast<std::int64_t>(done + packed.size()));
    }
    std::copy(packed.begin(), packed.end(), window.begin());
    const std::size_t taken = static_cast<std::size_t>(cuts.back()) - done;
    reach = taken > 0 ? window_size : 2 * reach;
    done += taken;
  }
  return cuts;
}

}  // namespace fastio
