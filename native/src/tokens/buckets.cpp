// Samples sorted by length, by counting.

#include "tokens/buckets.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/random.h"
#include "tokens/bins.h"

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

/// Packs best fit decreasing. Lists are linked by position, so that nothing is allocated a sample.
///
/// Equally long samples that follow each other go into one bin while they fit: after the first of
/// them, no other bin has as little room that is enough.
class BestFit {
 public:
  explicit BestFit(std::size_t capacity)
      : capacity_(capacity), with_free_(capacity + 1, none), free_(capacity + 1) {}

  /// Packs samples that come longest first.
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
  }

  [[nodiscard]] std::size_t size() const noexcept { return bins_.size(); }

  /// Adds the bins that were packed, samples longest first.
  void add_to(PackedBins& out, std::span<const std::uint64_t> sorted) const {
    for (const Bin& bin : bins_) {
      out.open(capacity_);
      for (std::uint32_t run = bin.first; run != none; run = runs_[run].next) {
        for (std::uint32_t i = runs_[run].start; i < runs_[run].stop; ++i) out.put(sorted[i]);
      }
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

/// Samples of a window that are not in a bin yet: in their order, and by length.
class Pool {
 public:
  explicit Pool(std::size_t capacity)
      : capacity_(capacity),
        first_(capacity + 1, none),
        counts_(capacity + 1),
        by_room_(capacity + 1) {}

  void fill(std::span<const std::uint64_t> samples) {
    samples_ = samples;
    next_.resize(samples.size());
    is_taken_.assign(samples.size(), false);
    left_ = samples.size();
    front_ = 0;
    for (std::size_t i = samples.size(); i-- > 0;) {  // so that a list begins with its first
      const std::size_t length = length_of(samples[i]);
      next_[i] = first_[length];
      first_[length] = static_cast<std::uint32_t>(i);
      if (counts_[length]++ == 0) by_room_.insert(capacity_ - length);
    }
  }

  /// Forgets what is left, in as many steps as there are samples.
  void clear() noexcept {
    for (const std::uint64_t sample : samples_) {
      const std::size_t length = length_of(sample);
      first_[length] = none;
      counts_[length] = 0;
      by_room_.remove(capacity_ - length);
    }
  }

  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  /// The first sample not taken, from place `from` on; the number of samples where there is none.
  [[nodiscard]] std::size_t next(std::size_t from) const noexcept {
    while (from < samples_.size() && is_taken_[from]) ++from;
    return from;
  }

  /// The same from the beginning.
  [[nodiscard]] std::size_t front() noexcept { return front_ = next(front_); }

  /// The greatest length of a sample, other than one of length `but`, of at most `room` tokens;
  /// `none` where there is none.
  [[nodiscard]] std::uint32_t longest_within(std::size_t room, std::size_t but) const noexcept {
    std::uint32_t found = by_room_.from(capacity_ - room);
    if (found == none) return none;
    if (capacity_ - found == but && counts_[but] == 1) {
      found = by_room_.from(std::size_t{found} + 1);
      if (found == none) return none;
    }
    return static_cast<std::uint32_t>(capacity_) - found;
  }

  /// Takes the first sample of this length.
  std::uint64_t take_length(std::size_t length) noexcept {
    while (is_taken_[first_[length]]) first_[length] = next_[first_[length]];
    return take(first_[length]);
  }

  std::uint64_t take(std::size_t place) noexcept {
    const std::size_t length = length_of(samples_[place]);
    is_taken_[place] = true;
    --left_;
    if (--counts_[length] == 0) by_room_.remove(capacity_ - length);
    return samples_[place];
  }

 private:
  const std::size_t capacity_;
  std::span<const std::uint64_t> samples_;
  std::vector<std::uint32_t> first_;  // by length: the first of that list that may be left
  std::vector<std::uint32_t> counts_;
  NumberSet by_room_;                // capacity - length, of which there are samples
  std::vector<std::uint32_t> next_;  // by place: of the same length
  std::vector<bool> is_taken_;
  std::size_t left_ = 0;
  std::size_t front_ = 0;
};

/// Fills bins with samples as they come, and closes each with two that leave nothing free.
class MixedFill {
 public:
  explicit MixedFill(std::size_t capacity) : capacity_(capacity), pool_(capacity) {}

  /// Packs samples in random order until at most `rest` are left, and returns these.
  std::span<const std::uint64_t> pack(std::span<const std::uint64_t> samples, std::size_t rest,
                                      PackedBins& out) {
    pool_.fill(samples);
    std::size_t tokens = 0;
    large_.clear();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      tokens += length_of(samples[i]);
      if (length_of(samples[i]) > capacity_ / 2) large_.push_back(static_cast<std::uint32_t>(i));
    }
    closing_ = 5 * tokens / (2 * std::max<std::size_t>(samples.size(), 1)) + 1;
    // No two of these share a bin. While there are many samples, some close the smallest gaps.
    std::stable_sort(large_.begin(), large_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return length_of(samples[a]) > length_of(samples[b]);
    });
    for (const std::uint32_t place : large_) {
      if (pool_.left() <= rest) break;
      out.open(capacity_);
      out.put(pool_.take(place));
      fill(samples, out);
    }
    while (pool_.left() > rest) {
      out.open(capacity_);
      out.put(pool_.take(pool_.front()));
      fill(samples, out);
    }
    rest_.clear();
    for (std::size_t i = pool_.front(); i < samples.size(); i = pool_.next(i + 1)) {
      rest_.push_back(samples[i]);
    }
    pool_.clear();
    return rest_;
  }

 private:
  static constexpr std::size_t candidates = 32;  // for the last but one of a bin
  static constexpr std::size_t looked_at = 256;  // samples, for those that fit

  struct Pair {
    std::size_t place;     // of the first
    std::uint32_t length;  // of the second; `none`: the first goes alone
    std::size_t waste;
  };

  void fill(std::span<const std::uint64_t> samples, PackedBins& out) {
    while (pool_.left() > 0) {
      const std::size_t free = out.free();
      const std::size_t place = first_fitting(samples, free);
      if (place == samples.size()) {
        const std::uint32_t length = pool_.longest_within(free, none);
        if (length == none) return;
        out.put(pool_.take_length(length));
      } else if (free > closing_) {
        out.put(pool_.take(place));
      } else {
        const Pair pair = best_pair(samples, free, place);
        out.put(pool_.take(pair.place));
        if (pair.length != none) out.put(pool_.take_length(pair.length));
      }
    }
  }

  [[nodiscard]] std::size_t first_fitting(std::span<const std::uint64_t> samples,
                                          std::size_t free) noexcept {
    std::size_t place = pool_.front();
    for (std::size_t i = 0; i < looked_at && place < samples.size(); ++i) {
      if (length_of(samples[place]) <= free) return place;
      place = pool_.next(place + 1);
    }
    return samples.size();
  }

  /// Of the samples from `place` on: the first that leaves nothing free together with another, or
  /// the one that leaves least.
  [[nodiscard]] Pair best_pair(std::span<const std::uint64_t> samples, std::size_t free,
                               std::size_t place) const noexcept {
    Pair best{place, none, free + 1};
    std::size_t found = 0;
    for (std::size_t i = 0; i < looked_at && found < candidates && place < samples.size(); ++i) {
      const std::size_t length = length_of(samples[place]);
      if (length <= free) {
        ++found;
        const std::uint32_t other = pool_.longest_within(free - length, length);
        const std::size_t waste = free - length - (other == none ? 0 : other);
        if (waste < best.waste) best = {place, other, waste};
        if (waste == 0) return best;
      }
      place = pool_.next(place + 1);
    }
    return best;
  }

  const std::size_t capacity_;
  Pool pool_;
  std::size_t closing_ = 0;  // tokens free, from which on a bin is closed
  std::vector<std::uint32_t> large_;
  std::vector<std::uint64_t> rest_;
};

/// Packs one window after the other.
class WindowPacker {
 public:
  WindowPacker(std::uint32_t longest, const BinRule& rule)
      : sorter_(longest, rule.window), best_fit_(rule.capacity) {
    if (rule.is_mixed) mixed_.emplace(rule.capacity);
  }

  /// The bins of these samples, fullest first; until the next call.
  const PackedBins& pack(std::span<const std::uint64_t> window) {
    bins_.clear();
    best_fit(window);
    if (!mixed_ || !mix(window)) best_fit_.add_to(bins_, {sorted_.data(), window.size()});
    bins_.sort();
    return bins_;
  }

 private:
  void best_fit(std::span<const std::uint64_t> samples) {
    sorted_.resize(std::max(sorted_.size(), samples.size()));
    sorter_.sort(samples, sorted_);
    best_fit_.pack({sorted_.data(), samples.size()});
  }

  /// Mixes all but a part of the window, which best fit decreasing then packs: the smallest part
  /// with which hardly more bins are needed than best fit decreasing needs. False, with no bins,
  /// where there is none.
  bool mix(std::span<const std::uint64_t> window) {
    const std::size_t enough = best_fit_.size() + std::max<std::size_t>(best_fit_.size() / 500, 1);
    for (const std::size_t part : {16U, 4U}) {
      bins_.clear();
      const auto rest = mixed_->pack(window, window.size() / part, bins_);
      best_fit(rest);
      best_fit_.add_to(bins_, {sorted_.data(), rest.size()});
      if (bins_.size() <= enough) return true;
    }
    bins_.clear();
    best_fit(window);
    return false;
  }

  LengthSorter sorter_;
  BestFit best_fit_;
  std::optional<MixedFill> mixed_;
  std::vector<std::uint64_t> sorted_;
  PackedBins bins_;
};

}  // namespace

std::vector<std::int64_t> best_fit_bins(std::span<std::uint64_t> samples, const BinRule& rule) {
  WindowPacker packer(longest_of(samples), rule);
  return pack_windows(samples, rule.window, rule.world_size,
                      [&](std::span<const std::uint64_t> window, bool) -> const PackedBins& {
                        return packer.pack(window);
                      });
}

}  // namespace fastio
