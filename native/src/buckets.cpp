#include "fastio/buckets.h"

#include <algorithm>
#include <bit>

#include "length_sorter.h"

namespace fastio {
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

}  // namespace fastio
