#include "fastio/recently_used.h"

#include <numeric>
#include <utility>

namespace fastio {

RecentlyUsed::RecentlyUsed(std::vector<std::int64_t> sizes, std::uint64_t capacity)
    : sizes_(std::move(sizes)),
      newer_(sizes_.size() + 1),
      older_(sizes_.size() + 1),
      capacity_(capacity) {
  std::iota(older_.begin(), older_.end(), 0U);
  newer_.back() = older_.back();
}

std::uint64_t RecentlyUsed::use(std::span<const std::int64_t> samples) noexcept {
  std::uint64_t missed = 0;
  const auto end = static_cast<std::uint32_t>(sizes_.size());
  for (const std::int64_t number : samples) {
    const auto sample = static_cast<std::uint32_t>(number);
    const auto size = static_cast<std::uint64_t>(sizes_[sample]);
    if (older_[sample] != sample) {
      unlink(sample);
    } else {
      missed += size;
      if (size > capacity_) continue;
      held_ += size;
    }
    put_first(sample);
    while (held_ > capacity_) {
      const std::uint32_t oldest = newer_[end];
      held_ -= static_cast<std::uint64_t>(sizes_[oldest]);
      unlink(oldest);
      older_[oldest] = oldest;
    }
  }
  return missed;
}

void RecentlyUsed::unlink(std::uint32_t sample) noexcept {
  older_[newer_[sample]] = older_[sample];
  newer_[older_[sample]] = newer_[sample];
}

void RecentlyUsed::put_first(std::uint32_t sample) noexcept {
  const auto end = static_cast<std::uint32_t>(sizes_.size());
  older_[sample] = older_[end];
  newer_[sample] = end;
  newer_[older_[end]] = sample;
  older_[end] = sample;
}

}  // namespace fastio
