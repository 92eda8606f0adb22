#include "fastio/lanes.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fastio/philox.h"

namespace fastio {

bool shuffle_runs(std::span<std::int64_t> values, std::span<const std::int64_t> cuts,
                  std::uint64_t seed, std::uint64_t stream) noexcept {
  if (cuts.empty() || cuts.front() != 0 || !std::ranges::is_sorted(cuts) ||
      cuts.back() != static_cast<std::int64_t>(values.size())) {
    return false;
  }
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    const auto first = static_cast<std::size_t>(cuts[k]);
    shuffle(values.subspan(first, static_cast<std::size_t>(cuts[k + 1]) - first), seed, stream + k);
  }
  return true;
}

void interleave_lanes(std::span<std::int64_t> out, std::span<std::int64_t> order,
                      std::uint64_t seed, std::uint64_t stream) noexcept {
  const std::size_t lanes = order.size();
  if (lanes == 0) return;
  const auto start_of = [&](std::size_t lane) { return lane * out.size() / lanes; };
  std::iota(order.begin(), order.end(), 0);
  std::size_t done = 0;
  for (std::size_t round = 0; done < out.size(); ++round) {
    shuffle(order, seed, stream + round);
    for (const std::int64_t number : order) {
      const auto lane = static_cast<std::size_t>(number);
      const std::size_t place = start_of(lane) + round;
      if (place < start_of(lane + 1)) out[done++] = static_cast<std::int64_t>(place);
    }
  }
}

bool write_runs(std::span<const std::int64_t> starts, std::span<const std::int64_t> stops,
                std::span<std::int64_t> out) noexcept {
  if (starts.size() != stops.size()) return false;
  std::size_t done = 0;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    if (stops[k] < starts[k]) return false;
    const auto length = static_cast<std::size_t>(stops[k] - starts[k]);
    if (length > out.size() - done) return false;
    std::iota(out.begin() + static_cast<std::ptrdiff_t>(done),
              out.begin() + static_cast<std::ptrdiff_t>(done + length), starts[k]);
    done += length;
  }
  return done == out.size();
}

bool deal_lanes(std::span<const std::int64_t> places, const LaneDeal& deal, std::size_t first_rank,
                std::size_t ranks, std::span<std::int64_t> out) {
  const std::size_t count = places.size();
  const std::size_t size = deal.world_size * deal.batch_size;
  const std::size_t row = ranks == 0 ? 0 : out.size() / ranks;
  if (deal.start > count || deal.steps > (count - deal.start) / size ||
      deal.steps > row / deal.batch_size || first_rank + ranks > deal.world_size) {
    return false;
  }
  const std::size_t first = first_rank * deal.batch_size;
  const std::size_t last = first + ranks * deal.batch_size;
  std::vector<std::uint32_t> lane(size);
  std::vector<std::size_t> next(deal.lanes + 1);
  std::vector<std::size_t> done(ranks);
  for (std::size_t step = 0; step < deal.steps; ++step) {
    const std::size_t begin = deal.start + step * size;
    std::ranges::fill(next, 0);
    for (std::size_t i = 0; i < size; ++i) {
      const auto place = static_cast<std::uint64_t>(places[begin + i]);
      if (place >= count) return false;
      lane[i] = static_cast<std::uint32_t>(((place + 1) * deal.lanes - 1) / count);
      ++next[lane[i] + 1];
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::ranges::fill(done, step * deal.batch_size);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t sorted = next[lane[i]]++;
      if (sorted < first || sorted >= last) continue;
      const std::size_t rank = (sorted - first) / deal.batch_size;
      out[rank * row + done[rank]++] = static_cast<std::int64_t>(begin + i);
    }
  }
  return true;
}

}  // namespace fastio
