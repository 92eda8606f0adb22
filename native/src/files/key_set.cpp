#include "files/key_set.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fastio {
namespace {

constexpr std::size_t min_slots = 1024;

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// Calls `take(name)` for each name of `joined`, until one returns false.
template <typename Take>
bool for_each_name(std::string_view joined, Take take) {
  while (true) {
    const std::size_t end = joined.find('\0');
    if (!take(joined.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    joined.remove_prefix(end + 1);
  }
}

/// The run of digits at the beginning without leading zeros; `text` loses it.
std::string_view take_number(std::string_view& text) noexcept {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view run = text.substr(0, end);
  text.remove_prefix(end);
  run.remove_prefix(std::min(run.find_first_not_of('0'), run.size()));
  return run;
}

std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// 64 bits of a name: its words of 8 bytes multiplied into each other.
std::uint64_t lane(std::string_view name, std::uint64_t state, std::uint64_t factor) noexcept {
  state ^= name.size() * factor;
  while (!name.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(name.size(), sizeof word);
    std::memcpy(&word, name.data(), size);
    name.remove_prefix(size);
    state = fold(state ^ word, factor) + (word << 17 | word >> 47);
  }
  return fold(state ^ (state >> 32), factor);
}

NameHash hash_of(std::string_view name) noexcept {
  const NameHash hash{lane(name, 0x243f6a8885a308d3, 0x9e3779b97f4a7c15),
                      lane(name, 0x13198a2e03707344, 0xd1b54a32d192ed03)};
  return hash == NameHash{} ? NameHash{1, 0} : hash;
}

std::size_t count_names(std::string_view joined) noexcept {
  return static_cast<std::size_t>(std::count(joined.begin(), joined.end(), '\0')) + 1;
}

}  // namespace

std::vector<NameHash> name_hashes(std::string_view joined) {
  std::vector<NameHash> hashes;
  hashes.reserve(count_names(joined));
  for_each_name(joined, [&](std::string_view name) {
    hashes.push_back(hash_of(name));
    return true;
  });
  return hashes;
}

int compare_natural(std::string_view a, std::string_view b) noexcept {
  std::string_view left = a;
  std::string_view right = b;
  while (!left.empty() && !right.empty()) {
    if (is_digit(left[0]) && is_digit(right[0])) {
      const std::string_view number = take_number(left);
      const std::string_view other = take_number(right);
      if (number.size() != other.size()) return number.size() < other.size() ? -1 : 1;
      if (const int order = number.compare(other); order != 0) return order < 0 ? -1 : 1;
      continue;
    }
    const auto byte = static_cast<unsigned char>(left[0]);
    const auto against = static_cast<unsigned char>(right[0]);
    if (byte != against) return byte < against ? -1 : 1;
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  if (left.empty() != right.empty()) return left.empty() ? -1 : 1;
  const int order = a.compare(b);
  return order < 0 ? -1 : (order > 0 ? 1 : 0);
}

bool KeySet::rise(std::string_view joined) {
  std::string_view before = last_;
  for_each_name(joined, [&](std::string_view name) {
    by_bytes_ = by_bytes_ && before < name;
    by_numbers_ = by_numbers_ && compare_natural(before, name) < 0;
    before = name;
    return by_bytes_ || by_numbers_;
  });
  if (!by_bytes_ && !by_numbers_) return false;
  last_ = before;
  return true;
}

std::optional<std::size_t> KeySet::insert(std::string_view joined) {
  const std::size_t count = count_names(joined);
  reserve(used_ + count);
  std::vector<std::size_t> taken;
  taken.reserve(count);
  const bool all_new = for_each_name(joined, [&](std::string_view name) {
    const NameHash hash = hash_of(name);
    const std::size_t slot = slot_of(hash);
    if (slots_[slot] == hash) return false;
    slots_[slot] = hash;
    taken.push_back(slot);
    return true;
  });
  if (!all_new) {
    // Last in, first out: nothing behind a slot was put there because of it.
    for (auto slot = taken.rbegin(); slot != taken.rend(); ++slot) slots_[*slot] = NameHash{};
    return taken.size();
  }
  used_ += taken.size();
  return std::nullopt;
}

std::vector<NameHash> KeySet::take() {
  std::vector<NameHash> taken;
  taken.reserve(used_);
  for (NameHash& hash : slots_) {
    if (hash != NameHash{}) taken.push_back(std::exchange(hash, NameHash{}));
  }
  used_ = 0;
  std::sort(taken.begin(), taken.end());
  return taken;
}

void KeySet::reserve(std::size_t count) {
  std::size_t size = std::max(slots_.size(), min_slots);
  while (count > size / 10 * 7) size *= 2;
  if (size == slots_.size()) return;
  std::vector<NameHash> old(size);
  old.swap(slots_);
  for (const NameHash& hash : old) {
    if (hash != NameHash{}) slots_[slot_of(hash)] = hash;
  }
}

std::size_t KeySet::slot_of(const NameHash& hash) const noexcept {
  std::size_t slot = hash[0] & (slots_.size() - 1);
  while (slots_[slot] != NameHash{} && slots_[slot] != hash)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

}  // namespace fastio
