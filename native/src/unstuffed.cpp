#include "fastio/unstuffed.h"

#include <bit>
#include <cstring>

#include "scan_reader.h"

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
  for (;;) {
    // Eight bytes at a time up to one that is 0xFF: its bit is the lowest of `found`.
    for (; stop - next >= 8; next += 8, size_ += 8) {
      std::uint64_t bytes;
      std::memcpy(&bytes, next, sizeof bytes);
      std::memcpy(data_ + size_, &bytes, sizeof bytes);
      bytes = little_endian(bytes);
      const std::uint64_t found = (~bytes - 0x0101010101010101) & bytes & 0x8080808080808080;
      if (found == 0) continue;
      const auto before = static_cast<std::size_t>(std::countr_zero(found) / 8);
      next += before;
      size_ += before;
      break;
    }
    while (next != stop && *next != marker_start) data_[size_++] = *next++;
    if (stop - next < 2 || next[1] != 0) break;
    data_[size_++] = marker_start;
    removed_[removed_count_++] = size_;
    next += 2;
  }
  std::memset(data_ + size_, 0, slack);
  return true;
}

}  // namespace fastio
