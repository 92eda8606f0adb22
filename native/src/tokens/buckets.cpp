// Samples sorted by length, by counting.

#include "tokens/buckets.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"

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

namespace {

std::size_t step_size(const StepRule& rule, std::size_t longest) noexcept {
  if (rule.batch_size > 0) return rule.batch_size * rule.world_size;
  const std::size_t padded = (longest + rule.multiple - 1) / rule.multiple * rule.multiple;
  return std::max<std::size_t>(rule.max_tokens / std::max<std::size_t>(padded, 1), 1) *
         rule.world_size;
}

}  // namespace

std::vector<std::int64_t> bucket_steps(std::span<std::uint64_t> samples, const StepRule& rule) {
  LengthSorter sorter(longest_of(samples), rule.window);
  std::vector<std::int64_t> cuts{0};
  std::vector<std::uint64_t> sorted;
  std::size_t reach = rule.window;
  for (std::size_t done = 0; done < samples.size();) {
    // What the window before left over lies at the front.
    const auto window = samples.subspan(done, std::min(reach, samples.size() - done));
    const bool is_last = done + window.size() == samples.size();
    sorted.resize(std::max(sorted.size(), window.size()));
    sorter.sort(window, sorted);
    std::size_t taken = 0;
    while (taken < window.size()) {
      const std::size_t size = step_size(rule, sorter.longest_like(sorted[taken]));
      if (size > window.size() - taken && !is_last) break;
      const std::size_t stop = taken + std::min(size, window.size() - taken);
      for (; taken < stop; ++taken) window[taken] = index_of(sorted[taken]);
      cuts.push_back(static_cast<std::int64_t>(done + taken));
    }
    std::copy_n(sorted.data() + taken, window.size() - taken, window.data() + taken);
    reach = taken > 0 ? rule.window : 2 * reach;  // a step may need more than a window
    done += taken;
  }
  return cuts;
}

bool permute_steps(std::span<std::int64_t> order, std::size_t size,
                   std::span<const std::int64_t> from) {
  if (from.empty()) return true;
  std::vector<bool> is_named(from.size());
  for (const std::int64_t step : from) {
    if (step < 0 || static_cast<std::size_t>(step) >= from.size()) return false;
    if (is_named[static_cast<std::size_t>(step)]) return false;
    is_named[static_cast<std::size_t>(step)] = true;
  }
  if (size != 0 && from.size() > order.size() / size) return false;
  std::vector<std::int64_t> first(size);
  std::vector<bool> is_done(from.size());
  for (std::size_t start = 0; start < from.size(); ++start) {
    if (is_done[start]) continue;
    std::copy_n(order.data() + start * size, size, first.data());
    std::size_t step = start;
    for (;;) {  // along the cycle: each step takes what the next one held
      is_done[step] = true;
      const auto next = static_cast<std::size_t>(from[step]);
      if (next == start) break;
      std::copy_n(order.data() + next * size, size, order.data() + step * size);
      step = next;
    }
    std::copy_n(first.data(), size, order.data() + step * size);
  }
  return true;
}

std::size_t deal_steps(std::span<const std::int64_t> order, std::span<const std::int64_t> cuts,
                       std::span<const std::int64_t> steps, std::size_t rank,
                       std::size_t world_size, std::span<std::int64_t> out) noexcept {
  std::size_t written = 0;
  for (const std::int64_t step : steps) {
    if (step < 0 || static_cast<std::size_t>(step) + 1 >= cuts.size()) continue;
    const auto cut = static_cast<std::size_t>(step);
    const auto start = static_cast<std::size_t>(std::max<std::int64_t>(cuts[cut], 0));
    const auto stop = std::min(static_cast<std::size_t>(cuts[cut + 1]), order.size());
    if (world_size == 1 && start < stop) {
      const std::size_t size = std::min(stop - start, out.size() - written);
      std::copy_n(order.data() + start, size, out.data() + written);
      written += size;
      continue;
    }
    for (std::size_t i = start + rank; i < stop && written < out.size(); i += world_size) {
      out[written++] = order[i];
    }
  }
  return written;
}

std::size_t left_over(std::span<std::int64_t> order, std::span<const std::int64_t> cuts,
                      std::span<const std::int64_t> steps, std::size_t count) {
  std::vector<bool> is_taken(cuts.size());
  for (const std::int64_t step : steps) {
    if (step >= 0 && static_cast<std::size_t>(step) + 1 < cuts.size()) {
      is_taken[static_cast<std::size_t>(step)] = true;
    }
  }
  std::vector<std::uint64_t> is_left(count / 64 + 1);
  std::size_t at = 0;
  for (std::size_t step = 0; step <= cuts.size(); ++step) {  // behind the last: the rest
    const std::size_t stop = step + 1 < cuts.size()
                                 ? std::min(static_cast<std::size_t>(cuts[step + 1]), order.size())
                                 : order.size();
    if (step < cuts.size() && is_taken[step]) at = std::max(at, stop);
    for (; at < stop; ++at) {
      const auto sample = static_cast<std::size_t>(order[at]);
      if (sample < count) is_left[sample / 64] |= std::uint64_t{1} << sample % 64;
    }
  }
  std::size_t written = 0;
  for (std::size_t word = 0; word < is_left.size(); ++word) {
    for (std::uint64_t bits = is_left[word]; bits != 0 && written < order.size();
         bits &= bits - 1) {
      order[written++] =
          static_cast<std::int64_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
    }
  }
  return written;
}

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
