#include "fastio/jpeg_intervals.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "fastio/jump_table.h"

namespace fastio {
namespace {

constexpr std::uint8_t marker_start = 0xFF;
constexpr std::uint8_t first_restart_marker = 0xD0;
constexpr std::uint8_t start_of_scan = 0xDA;
constexpr std::size_t marker_bytes = 2;
constexpr std::uint32_t tag = 0xFFFF'FF02;
constexpr std::size_t head_words = 2;

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

std::uint32_t word_at(Bytes words, std::size_t number) noexcept {
  std::uint32_t word;
  std::memcpy(&word, words.data() + number * sizeof word, sizeof word);
  return word;
}

std::size_t place_at(Bytes words, std::size_t number) noexcept {
  return ~word_at(words, head_words + number);
}

}  // namespace

bool find_intervals(Bytes file, Blob& out) noexcept {
  const std::uint8_t* const stop = file.data() + file.size();
  const std::uint8_t* next = file.data() + first_scan(file);
  const std::size_t start = out.size();
  for (std::size_t interval = 1;;) {
    next = static_cast<const std::uint8_t*>(
        std::memchr(next, marker_start, static_cast<std::size_t>(stop - next)));
    if (next == nullptr || stop - next < 2) break;
    next += marker_bytes;
    if (next[-1] != marker_before(interval)) continue;
    if (interval++ % intervals_a_place != 0) continue;
    constexpr std::array<std::uint32_t, head_words> head{tag, 0};
    if (out.size() == start && !out.append(head.data(), sizeof head)) return false;
    const auto inverted = ~static_cast<std::uint32_t>(next - file.data());
    if (!out.append(&inverted, sizeof inverted)) return false;
  }
  if (out.size() == start) return true;
  const Bytes words = out.bytes().subspan(start);
  const std::uint32_t sum = noted_checksum(words, file, place_at(words, 0));
  std::memcpy(out.data() + start + sizeof tag, &sum, sizeof sum);
  return true;
}

bool Intervals::are_places_of(Bytes file) const noexcept {
  if (words_.size() < (head_words + 1) * sizeof tag || word_at(words_, 0) != tag) return false;
  const std::size_t origin = place_at(words_, 0);
  return origin <= file.size() && word_at(words_, 1) == noted_checksum(words_, file, origin);
}

Intervals::Place Intervals::before(std::size_t number, Bytes file) const noexcept {
  constexpr Place unknown{0, {}};
  const std::size_t places = std::max(words_.size() / sizeof tag, head_words) - head_words;
  const std::size_t known = std::min(number / intervals_a_place, places);
  if (known == 0) return unknown;
  const std::size_t place = place_at(words_, known - 1);
  if (place < marker_bytes || place > file.size()) return unknown;
  const std::size_t interval = known * intervals_a_place;
  const std::uint8_t* const marker = file.data() + place - marker_bytes;
  const bool right = marker[0] == marker_start && marker[1] == marker_before(interval);
  return right ? Place{interval, file.subspan(place)} : unknown;
}

}  // namespace fastio
