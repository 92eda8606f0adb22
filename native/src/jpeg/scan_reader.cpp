#include "jpeg/scan_reader.h"

#include <algorithm>

namespace fastio {

/// False at a marker, where it stays, and at the end.
bool ScanReader::next_byte(std::uint8_t& byte) noexcept {
  if (next_ == stop_) return false;
  byte = *next_;
  if (byte == marker_start) {
    // A zero behind it says that it is data. After a repeated one libjpeg-turbo takes it for
    // data too, but leaves coefficients of a first attempt in the block: here it is damage.
    if (stop_ - next_ < 2 || next_[1] != 0) return false;
    ++next_;
  }
  ++next_;
  return true;
}

[[gnu::noinline]] std::uint64_t ScanReader::without_stuffed_zero(std::uint64_t bytes,
                                                                 int count) noexcept {
  const int first = std::countr_zero(marker_starts(bytes)) / 8;
  const std::uint64_t before = (std::uint64_t{1} << 8 * (first + 1)) - 1;
  const std::uint64_t behind = bytes >> 8 & ~before;
  const bool is_stuffed = (bytes >> 8 * (first + 1) & 0xFF) == 0;
  return is_stuffed && !has_marker_start(behind, count) ? (bytes & before) | behind : 0;
}

[[gnu::noinline]] auto ScanReader::refill_by_bytes(ScanReader reader) noexcept -> ScanReader {
  ScanBits& bits = reader.bits_;
  bits.buffer &= bits.count == 0 ? 0 : ~std::uint64_t{0} << (64 - bits.count);
  for (; bits.count < 56; bits.count += 8) {
    std::uint8_t byte = 0;
    if (!reader.next_byte(byte)) {
      byte = 0;
      bits.padding += 8;
    }
    bits.buffer |= std::uint64_t{byte} << (56 - bits.count);
  }
  return reader;
}

Status pass_restart_marker(Bytes& input, std::size_t number) noexcept {
  constexpr std::uint8_t first_restart_marker = 0xD0;
  const std::uint8_t* next = input.data();
  const std::uint8_t* const stop = next + input.size();
  std::uint8_t marker = 0;
  while (marker == 0) {
    const auto left = static_cast<std::size_t>(stop - next);
    next = static_cast<const std::uint8_t*>(std::memchr(next, ScanReader::marker_start, left));
    if (next == nullptr) return Status::truncated;
    next = std::find_if(next, stop, [](auto byte) { return byte != ScanReader::marker_start; });
    if (next == stop) return Status::truncated;
    marker = *next++;
  }
  if (marker != first_restart_marker + number % 8) return Status::corrupt;
  input = {next, stop};
  return Status::ok;
}

}  // namespace fastio
