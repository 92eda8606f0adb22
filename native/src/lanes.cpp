#include "fastio/lanes.h"

#include <algorithm>
#include <numeric>

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

}  // namespace fastio
