#include "fastio/jpeg_intervals.h"

#include <algorithm>
#include <cstring>

namespace fastio {
namespace {

constexpr std::uint8_t marker_start = 0xFF;
constexpr std::uint8_t first_restart_marker = 0xD0;
constexpr std::uint8_t start_of_scan = 0xDA;
constexpr std::size_t marker_bytes = 2;

constexpr std::uint8_t marker_before(std::size_t interval) noexcept {
  return static_cast<std::uint8_t>(first_restart_marker + (interval - 1) % 8);
}

/// Where the data of the first scan begin; the file's end where there is none.
std::size_t first_scan(Bytes file) noexcept {
  std::size_t at = marker_bytes;  // behind SOI
  while (at + 4 <= file.size() && file[at] == marker_start) {
    const std::uint8_t marker = file[at + 1];
    at += marker_bytes + (std::size_t{file[at + 2]} << 8 | file[at + 3]);
    if (marker == start_of_scan) return std::min(at, file.size());
  }
  return file.size();
}

}  // namespace

bool find_intervals(Bytes file, Blob& out) noexcept {
  const std::uint8_t* const stop = file.data() + file.size();
  const std::uint8_t* next = file.data() + first_scan(file);
  for (std::size_t interval = 1;;) {
    next = static_cast<const std::uint8_t*>(
        std::memchr(next, marker_start, static_cast<std::size_t>(stop - next)));
    if (next == nullptr || stop - next < 2) return true;
    next += marker_bytes;
    if (next[-1] != marker_before(interval)) continue;
    const auto place = static_cast<std::uint32_t>(next - file.data());
    if (interval++ % intervals_a_place == 0 && !out.append(&place, sizeof place)) return false;
  }
}

Intervals::Place Intervals::before(std::size_t number, Bytes file) const noexcept {
  constexpr Place unknown{0, {}};
  std::uint32_t place = 0;
  const std::size_t known = std::min(number / intervals_a_place, places_.size() / sizeof place);
  if (known == 0) return unknown;
  std::memcpy(&place, places_.data() + (known - 1) * sizeof place, sizeof place);
  if (place < marker_bytes || place > file.size()) return unknown;
  const std::size_t interval = known * intervals_a_place;
  const std::uint8_t* const marker = file.data() + place - marker_bytes;
  const bool right = marker[0] == marker_start && marker[1] == marker_before(interval);
  return right ? Place{interval, file.subspan(place)} : unknown;
}

}  // namespace fastio
