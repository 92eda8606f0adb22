#include "fastio/unstuffed.h"

#include <cstring>

namespace fastio {

bool UnstuffedBytes::read(Bytes input) noexcept {
  constexpr std::uint8_t marker_start = 0xFF;
  size_ = removed_count_ = passed_ = 0;
  data_ = memory_.reserve(input.size() + slack);
  // At most every second byte is a zero that is left out.
  removed_ = reinterpret_cast<std::size_t*>(
      removed_memory_.reserve((input.size() / 2 + 1) * sizeof(std::size_t)));
  if (data_ == nullptr || removed_ == nullptr) return false;
  const std::uint8_t* next = input.data();
  const std::uint8_t* const stop = next + input.size();
  while (next != stop) {
    const auto left = static_cast<std::size_t>(stop - next);
    const auto* found = static_cast<const std::uint8_t*>(std::memchr(next, marker_start, left));
    const bool is_data = found != nullptr && stop - found >= 2 && found[1] == 0;
    const std::uint8_t* const end = found == nullptr ? stop : found + (is_data ? 1 : 0);
    const auto run = static_cast<std::size_t>(end - next);
    std::memcpy(data_ + size_, next, run);
    size_ += run;
    if (!is_data) break;
    removed_[removed_count_++] = size_;
    next = end + 1;
  }
  std::memset(data_ + size_, 0, slack);
  return true;
}

}  // namespace fastio
