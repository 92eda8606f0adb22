#include "fastio/bins.h"

#include <algorithm>
#include <bit>

#include "length_sorter.h"

namespace fastio {
namespace {

constexpr std::uint32_t none = 0xFFFFFFFF;

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

/// The bins of one window. Lists are linked by position, so that nothing is allocated a sample.
///
/// Equally long samples that follow each other go into one bin while they fit: after the first of
/// them, no other bin has as little room that is enough.
class Bins {
 public:
  explicit Bins(std::size_t capacity)
      : capacity_(capacity), with_free_(capacity + 1, none), free_(capacity + 1) {}

  void pack(std::span<const std::uint64_t> sorted) {
    bins_.clear();
    runs_.clear();
    for (std::uint32_t i = 0; i < sorted.size();) {
      const std::size_t length = length_of(sorted[i]);
      const std::uint32_t room = free_.from(length);
      const std::uint32_t bin = room == none ? open() : take(room);
      const std::uint32_t start = i;
      std::size_t free = bins_[bin].free;
      do {
        free -= length;
        ++i;
      } while (i < sorted.size() && length_of(sorted[i]) == length && length <= free);
      append(bin, start, i);
      bins_[bin].free = free;
      give(bin);
    }
    forget();
    std::stable_sort(bins_.begin(), bins_.end(),
                     [](const Bin& a, const Bin& b) { return a.free < b.free; });
  }

  [[nodiscard]] std::size_t size() const noexcept { return bins_.size(); }

  /// Calls `use` with the place of each sample in a bin.
  template <typename Use>
  void samples(std::size_t bin, Use use) const {
    for (std::uint32_t run = bins_[bin].first; run != none; run = runs_[run].next) {
      for (std::uint32_t i = runs_[run].start; i < runs_[run].stop; ++i) use(i);
    }
  }

 private:
  struct Bin {
    std::size_t free;
    std::uint32_t first;  // of its runs
    std::uint32_t last;
    std::uint32_t next;  // with as much free
  };

  struct Run {
    std::uint32_t start;
    std::uint32_t stop;
    std::uint32_t next;  // of the same bin
  };

  std::uint32_t open() {
    bins_.push_back({capacity_, none, none, none});
    return static_cast<std::uint32_t>(bins_.size() - 1);
  }

  std::uint32_t take(std::uint32_t room) noexcept {
    const std::uint32_t bin = with_free_[room];
    with_free_[room] = bins_[bin].next;
    if (with_free_[room] == none) free_.remove(room);
    return bin;
  }

  void give(std::uint32_t bin) noexcept {
    const std::size_t room = bins_[bin].free;
    bins_[bin].next = with_free_[room];
    with_free_[room] = bin;
    free_.insert(room);
  }

  /// For the next window; whatever the capacity, in as many steps as there are bins.
  void forget() noexcept {
    for (const Bin& bin : bins_) {
      with_free_[bin.free] = none;
      free_.remove(bin.free);
    }
  }

  void append(std::uint32_t bin, std::uint32_t start, std::uint32_t stop) {
    const auto run = static_cast<std::uint32_t>(runs_.size());
    runs_.push_back({start, stop, none});
    Bin& to = bins_[bin];
    if (to.first == none) {
      to.first = run;
    } else {
      runs_[to.last].next = run;
    }
    to.last = run;
  }

  const std::size_t capacity_;
  std::vector<std::uint32_t> with_free_;  // by tokens free: the first bin with as many
  NumberSet free_;                        // of which there are such bins
  std::vector<Bin> bins_;
  std::vector<Run> runs_;
};

}  // namespace

std::vector<std::int64_t> best_fit_bins(std::span<std::uint64_t> samples, const BinRule& rule) {
  LengthSorter sorter(longest_of(samples), rule.window);
  Bins bins(rule.capacity);
  std::vector<std::int64_t> cuts{0};
  std::vector<std::uint64_t> sorted;
  std::size_t reach = rule.window;
  for (std::size_t done = 0; done < samples.size();) {
    const auto window = samples.subspan(done, std::min(reach, samples.size() - done));
    const bool is_last = done + window.size() == samples.size();
    sorted.resize(std::max(sorted.size(), window.size()));
    sorter.sort(window, sorted);
    bins.pack({sorted.data(), window.size()});
    const std::size_t kept =
        is_last ? bins.size() : (bins.size() - 1) / rule.world_size * rule.world_size;
    std::size_t taken = 0;
    for (std::size_t bin = 0; bin < kept; ++bin) {
      bins.samples(bin, [&](std::uint32_t i) { window[taken++] = index_of(sorted[i]); });
      cuts.push_back(static_cast<std::int64_t>(done + taken));
    }
    std::size_t left = taken;
    for (std::size_t bin = kept; bin < bins.size(); ++bin) {
      bins.samples(bin, [&](std::uint32_t i) { window[left++] = sorted[i]; });
    }
    reach = taken > 0 ? rule.window : 2 * reach;
    done += taken;
  }
  return cuts;
}

}  // namespace fastio
