// Samples packed into bins that have two budgets.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "core/random.h"
#include "tokens/bins.h"
#include "tokens/buckets.h"

namespace fastio {
namespace {

/// What a sample takes of both budgets, or what a bin has left; `first` is that of the budget of
/// which all samples together need more.
struct Need {
  std::uint32_t first;
  std::uint32_t second;

  [[nodiscard]] bool fits(const Need& room) const noexcept {
    return first <= room.first && second <= room.second;
  }
  void take(const Need& other) noexcept {
    first -= other.first;
    second -= other.second;
  }
};

/// Samples that are not in a bin yet, to close bins with: the largest that fits is found by groups
/// of like second needs, and in them by the first need.
///
/// Only samples of a first need up to `limit` are known: bins that are closed have little room.
class Closers {
 public:
  static constexpr std::size_t most_groups = 8;

  /// `some` needs stand for all: groups have about equally many of them.
  Closers(std::vector<Need> some, std::size_t limit) : limit_(limit) {
    std::sort(some.begin(), some.end(),
              [](const Need& a, const Need& b) { return a.second < b.second; });
    for (std::size_t group = 1; group < most_groups && !some.empty(); ++group) {
      const std::uint32_t border = some[group * some.size() / most_groups].second;
      if (border > borders_.back()) borders_.push_back(border);
    }
    sets_.assign(groups(), NumberSet(limit + 1));
    heads_.assign(groups() * (limit + 1), none);
    counts_.assign(groups() * (limit + 1), 0);
  }

  /// Knows these samples, and no others.
  void fill(std::span<const Need> needs) {
    next_.resize(needs.size());
    slots_.resize(needs.size());
    most_ = 0;
    for (const Need& need : needs) most_ = std::max(most_, need.second);
    for (std::size_t place = needs.size(); place-- > 0;) {  // so that a list begins with its first
      const Need& need = needs[place];
      slots_[place] = none;
      if (need.first > limit_) continue;
      const std::size_t group = group_of(need);
      const std::size_t slot = slot_of(group, need.first);
      slots_[place] = static_cast<std::uint32_t>(slot);
      next_[place] = heads_[slot];
      heads_[slot] = static_cast<std::uint32_t>(place);
      if (counts_[slot]++ == 0) sets_[group].insert(limit_ - need.first);
    }
  }

  /// Forgets what is left of them, in as many steps as there are samples.
  void clear() noexcept {
    for (const std::uint32_t slot : slots_) {
      if (slot == none) continue;
      if (counts_[slot] > 0) drop(slot);
      counts_[slot] = 0;
      heads_[slot] = none;
    }
  }

  /// Says that a sample is taken.
  void take(std::uint32_t place) noexcept {
    const std::uint32_t slot = slots_[place];
    if (slot != none && --counts_[slot] == 0) drop(slot);
  }

  /// Where samples of some group and first need are listed; the list is known to have one left.
  struct Found {
    std::uint32_t first;  // `none` where there is none
    std::size_t group;
  };

  /// A great first need of a sample within `room`, other than one of need `but`: of the first group
  /// that leaves at most `slack`, or else the one that leaves least. Groups of great second needs
  /// come first if `is_rich`, else those of small ones.
  [[nodiscard]] Found largest(const Need& room, const Need* but, bool is_rich,
                              std::uint32_t slack) const noexcept {
    std::size_t stop = 0;
    while (stop < groups() && last_of(stop) <= room.second) ++stop;
    const auto reach = static_cast<std::uint32_t>(std::min<std::size_t>(room.first, limit_));
    Found best{none, 0};
    for (std::size_t i = 0; i < stop; ++i) {
      const std::size_t group = is_rich ? stop - 1 - i : i;
      const std::uint32_t first = largest_of(group, reach, but);
      if (first == none || (best.first != none && first <= best.first)) continue;
      best = {first, group};
      if (room.first - first <= slack) break;
    }
    return best;
  }

  /// The place of such a sample that came first; `is_taken` says which are taken.
  std::uint32_t place(const Found& found, const std::vector<bool>& is_taken) noexcept {
    std::uint32_t& head = heads_[slot_of(found.group, found.first)];
    while (is_taken[head]) head = next_[head];
    return head;
  }

 private:
  [[nodiscard]] std::size_t groups() const noexcept { return borders_.size(); }

  /// The greatest second need that a sample of the group may have.
  [[nodiscard]] std::uint32_t last_of(std::size_t group) const noexcept {
    return group + 1 < groups() ? borders_[group + 1] - 1 : most_;
  }

  [[nodiscard]] std::size_t group_of(const Need& need) const noexcept {
    std::size_t group = 0;
    for (std::size_t i = 1; i < groups(); ++i) group += need.second >= borders_[i];
    return group;
  }

  [[nodiscard]] std::size_t slot_of(std::size_t group, std::size_t first) const noexcept {
    return group * (limit_ + 1) + first;
  }

  void drop(std::size_t slot) noexcept {
    sets_[slot / (limit_ + 1)].remove(limit_ - slot % (limit_ + 1));
  }

  [[nodiscard]] std::uint32_t largest_of(std::size_t group, std::size_t reach,
                                         const Need* but) const noexcept {
    std::uint32_t found = sets_[group].from(limit_ - reach);
    if (found == none) return none;
    if (but != nullptr && limit_ - found == but->first && group == group_of(*but) &&
        counts_[slot_of(group, but->first)] == 1) {
      found = sets_[group].from(std::size_t{found} + 1);
      if (found == none) return none;
    }
    return static_cast<std::uint32_t>(limit_) - found;
  }

  const std::size_t limit_;
  std::vector<std::uint32_t> borders_{0};  // by group: its least second need
  std::uint32_t most_ = 0;       // the greatest second need of all samples that it was filled with
  std::vector<NumberSet> sets_;  // by group: limit - first need, of which samples are left
  std::vector<std::uint32_t> heads_;  // by group and first need: a place from which on all left are
  std::vector<std::uint32_t> counts_;  // the same: how many are left
  std::vector<std::uint32_t> next_;    // by place: of the same group and first need
  std::vector<std::uint32_t> slots_;   // by place: where it is listed; `none` where it is not
};

/// Packs one window after the other.
class PairPacker {
 public:
  PairPacker(std::span<const std::uint64_t> samples, const PairRule& rule)
      : rule_(rule), is_swapped_(swaps(samples, rule)), closers_(some(samples), limit(samples)) {
    const auto tokens = static_cast<std::uint32_t>(rule.most_tokens);
    const auto patches = static_cast<std::uint32_t>(rule.most_patches);
    whole_ = is_swapped_ ? Need{patches, tokens} : Need{tokens, patches};
    enough_ = whole_.first / 512;
  }

  /// The bins of these samples, fullest first, until the next call; what is not packed, in one
  /// behind them, unless the window is the last.
  const PackedBins& pack(std::span<const std::uint64_t> window, bool is_last) {
    load(window);
    const std::size_t rest = std::min(window.size() / 16, most_rest);
    while (left_ > rest) fill_bin();
    if (is_last) {
      pack_rest();
    } else if (left_ > 0) {
      open_rest();
    }
    closers_.clear();
    bins_.sort();
    return bins_;
  }

 private:
  static constexpr std::size_t most_rest = 4096;  // samples of a window that are not mixed
  static constexpr std::size_t candidates = 16;   // of each side, for the last but one of a bin
  static constexpr std::size_t looked_at = 64;    // samples of each side, for those that fit
  static constexpr std::size_t asked = 4096;      // samples that stand for all
  static constexpr std::uint64_t most_limit = 1 << 20;
  static constexpr std::size_t fetched_ahead = 32;  // samples, whose patches lie anywhere

  /// Whether samples need more of the patches than of the tokens, as shares of the budgets.
  static bool swaps(std::span<const std::uint64_t> samples, const PairRule& rule) noexcept {
    std::uint64_t tokens = 0;
    std::uint64_t patches = 0;
    for (const std::uint64_t sample : samples) tokens += length_of(sample);
    for (const std::int32_t each : rule.patches) patches += static_cast<std::uint32_t>(each);
    const int shift = std::max(0, static_cast<int>(std::bit_width(tokens | patches)) - 32);
    return (patches >> shift) * rule.most_tokens > (tokens >> shift) * rule.most_patches;
  }

  [[nodiscard]] Need need_of(std::uint64_t sample) const noexcept {
    const std::uint32_t tokens = length_of(sample);
    const auto patches = static_cast<std::uint32_t>(rule_.patches[index_of(sample)]);
    return is_swapped_ ? Need{patches, tokens} : Need{tokens, patches};
  }

  [[nodiscard]] std::vector<Need> some(std::span<const std::uint64_t> samples) const {
    std::vector<Need> needs;
    const std::size_t step = samples.size() / asked + 1;
    for (std::size_t i = 0; i < samples.size(); i += step) needs.push_back(need_of(samples[i]));
    return needs;
  }

  /// The greatest first need of a closer: four times the mean, so that memory follows the samples,
  /// within bounds.
  [[nodiscard]] std::size_t limit(std::span<const std::uint64_t> samples) const {
    const std::vector<Need> needs = some(samples);
    std::uint64_t sum = 0;
    for (const Need& need : needs) sum += need.first;
    const std::uint64_t reach = 4 * sum / std::max<std::size_t>(needs.size(), 1) + 64;
    const std::uint64_t most = is_swapped_ ? rule_.most_patches : rule_.most_tokens;
    return std::min({reach, most, most_limit});
  }

  void load(std::span<const std::uint64_t> window) {
    window_ = window;
    needs_.resize(window.size());
    first_ = 0;
    second_ = 0;
    for (std::size_t place = 0; place < window.size(); ++place) {
      if (place + fetched_ahead < window.size()) {
        __builtin_prefetch(rule_.patches.data() + index_of(window[place + fetched_ahead]));
      }
      needs_[place] = need_of(window[place]);
      first_ += needs_[place].first;
      second_ += needs_[place].second;
    }
    aim();
    closing_ = 5 * first_ / (2 * std::max<std::size_t>(window.size(), 1)) + 1;
    for (Side& side : sides_) {
      side.places.clear();
      side.front = 0;
    }
    for (std::uint32_t place = 0; place < needs_.size(); ++place) {
      sides_[is_rich(needs_[place])].places.push_back(place);
    }
    is_taken_.assign(window.size(), false);
    left_ = window.size();
    closers_.fill(needs_);
    bins_.clear();
  }

  /// Lets the next bin have both needs in the proportion of what is left.
  void aim() noexcept {
    const int shift = std::max(0, static_cast<int>(std::bit_width(first_ | second_)) - 31);
    mean_ = {static_cast<std::uint32_t>(first_ >> shift),
             static_cast<std::uint32_t>(second_ >> shift)};
  }

  /// Whether something has more of the second than what is left has in the mean.
  [[nodiscard]] bool is_rich(const Need& need) const noexcept {
    return std::uint64_t{need.second} * mean_.first > std::uint64_t{need.first} * mean_.second;
  }

  /// The samples of a window that are rich, or those that are not, in their order.
  struct Side {
    std::vector<std::uint32_t> places;
    std::size_t front = 0;  // all before it are taken
    std::size_t at = 0;  // all before it are taken, or too large for the bin that is being filled
  };

  void fill_bin() {
    for (Side& side : sides_) {
      while (side.front < side.places.size() && is_taken_[side.places[side.front]]) ++side.front;
      side.at = side.front;
    }
    aim();
    bins_.open(whole_.first);
    room_ = whole_;
    const std::uint32_t lean = place_at(sides_[0]);
    const std::uint32_t rich = place_at(sides_[1]);
    take(std::min(lean, rich));
    while (left_ > 0 && add()) {
    }
  }

  [[nodiscard]] std::uint32_t place_at(const Side& side) const noexcept {
    return side.at < side.places.size() ? side.places[side.at] : none;
  }

  /// Adds one sample or two to the bin; false where none fits.
  bool add() {
    const bool wants_rich = !is_rich({whole_.first - room_.first, whole_.second - room_.second});
    std::uint32_t place = next_fitting(sides_[wants_rich]);
    if (place == none) place = next_fitting(sides_[!wants_rich]);
    if (place == none) {
      const Closers::Found found = closers_.largest(room_, nullptr, wants_rich, enough_);
      if (found.first == none) return false;
      take(closers_.place(found, is_taken_));
    } else if (room_.first > closing_) {
      take(place);
    } else {
      close(wants_rich);
    }
    return true;
  }

  /// The next sample that fits; `none` where some that were looked at do not.
  std::uint32_t next_fitting(Side& side) noexcept {
    for (std::size_t i = 0; i < looked_at && side.at < side.places.size();) {
      const std::uint32_t place = side.places[side.at];
      if (!is_taken_[place]) {
        if (needs_[place].fits(room_)) return place;
        ++i;
      }
      ++side.at;
    }
    return none;
  }

  /// Adds the pair of samples that leaves least free of those that are tried, or one alone.
  void close(bool wants_rich) {
    std::uint32_t best = none;
    Closers::Found other{none, 0};
    std::uint32_t waste = none;
    for (const bool is_other : {false, true}) {
      const Side& side = sides_[wants_rich != is_other];
      std::size_t tried = 0;
      for (std::size_t at = side.at; at < side.places.size() && at < side.at + looked_at; ++at) {
        const std::uint32_t place = side.places[at];
        const Need need = needs_[place];
        if (is_taken_[place] || !need.fits(room_)) continue;
        Need room = room_;
        room.take(need);
        const bool then_rich = !is_rich({whole_.first - room.first, whole_.second - room.second});
        const Closers::Found found = closers_.largest(room, &need, then_rich, enough_);
        const std::uint32_t left = room.first - (found.first == none ? 0 : found.first);
        if (left < waste) {
          best = place;
          other = found;
          waste = left;
        }
        if (waste <= enough_ || ++tried == candidates) break;
      }
      if (waste <= enough_) break;
    }
    take(best);
    if (other.first != none) take(closers_.place(other, is_taken_));
  }

  void take(std::uint32_t place) {
    const Need need = needs_[place];
    is_taken_[place] = true;
    --left_;
    first_ -= need.first;
    second_ -= need.second;
    closers_.take(place);
    bins_.put(window_[place], need.first);
    room_.take(need);
  }

  /// The places of what is left, in their order.
  [[nodiscard]] std::vector<std::uint32_t> rest() const {
    std::vector<std::uint32_t> places;
    for (std::uint32_t place = 0; place < needs_.size(); ++place) {
      if (!is_taken_[place]) places.push_back(place);
    }
    return places;
  }

  void open_rest() {
    bins_.open(SIZE_MAX);  // behind all others
    for (const std::uint32_t place : rest()) bins_.put(window_[place], 0);
  }

  /// Packs what is left best fit decreasing: the sample that takes the greatest share of a budget
  /// first, each into the bin that has room for it and least of the first budget free.
  void pack_rest() {
    std::vector<std::uint32_t> places = rest();
    const auto share = [&](std::uint32_t place) {
      return std::max(std::uint64_t{needs_[place].first} * whole_.second,
                      std::uint64_t{needs_[place].second} * whole_.first);
    };
    std::stable_sort(places.begin(), places.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return share(a) > share(b); });
    std::vector<Need> rooms;
    std::vector<std::vector<std::uint32_t>> members;
    for (const std::uint32_t place : places) {
      std::size_t best = rooms.size();
      for (std::size_t bin = 0; bin < rooms.size(); ++bin) {
        const bool is_better = best == rooms.size() || rooms[bin].first < rooms[best].first;
        if (is_better && needs_[place].fits(rooms[bin])) best = bin;
      }
      if (best == rooms.size()) {
        rooms.push_back(whole_);
        members.emplace_back();
      }
      rooms[best].take(needs_[place]);
      members[best].push_back(place);
    }
    for (const auto& bin : members) {
      bins_.open(whole_.first);
      for (const std::uint32_t place : bin) bins_.put(window_[place], needs_[place].first);
    }
  }

  const PairRule rule_;
  const bool is_swapped_;
  Need whole_{};  // of an empty bin
  Closers closers_;
  std::span<const std::uint64_t> window_;
  std::vector<Need> needs_;     // by place in the window
  std::vector<bool> is_taken_;  // the same
  std::array<Side, 2> sides_;   // those that are not rich, those that are
  std::uint64_t first_ = 0;     // needs of what is left in the window
  std::uint64_t second_ = 0;
  Need mean_{};               // their proportion, in numbers below 2^31
  std::uint32_t enough_ = 0;  // so little may be left free of a bin
  Need room_{};               // of the bin that is being filled
  std::size_t closing_ = 0;   // of the first budget, from which on a bin is closed
  std::size_t left_ = 0;
  PackedBins bins_;
};

}  // namespace

std::vector<std::int64_t> pair_bins(std::span<std::uint64_t> samples, const PairRule& rule) {
  PairPacker packer(samples, rule);
  return pack_windows(
      samples, rule.window, rule.world_size,
      [&](std::span<const std::uint64_t> window, bool is_last) -> const PackedBins& {
        return packer.pack(window, is_last);
      });
}

}  // namespace fastio
