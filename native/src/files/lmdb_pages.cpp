#include "files/lmdb_pages.h"

#include <algorithm>
#include <cstring>

namespace fastio {
namespace {

constexpr std::size_t node_header = 8;
constexpr std::size_t pointer_bytes = 2;
constexpr std::size_t max_inline_node = 2038;  // liblmdb: ((4096 - 16) / 2 & ~1) - 2
constexpr std::uint16_t leaf_flag = 2;
constexpr std::uint16_t overflow_flag = 4;
constexpr std::uint16_t big_value_flag = 1;

/// Writes little endian; where the next value goes.
template <typename T>
std::uint8_t* put_number(std::uint8_t* out, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) *out++ = static_cast<std::uint8_t>(value >> (8 * i));
  return out;
}

std::uint8_t* put_bytes(std::uint8_t* out, const void* data, std::size_t size) noexcept {
  if (size > 0) std::memcpy(out, data, size);
  return out + size;
}

std::uint8_t* put_zeros(std::uint8_t* out, std::size_t size) noexcept {
  std::memset(out, 0, size);
  return out + size;
}

/// The sample's number with leading zeros.
std::uint8_t* put_digits(std::uint8_t* out, std::uint64_t number) noexcept {
  for (std::size_t i = LmdbPages::digits; i-- > 0; number /= 10) {
    out[i] = static_cast<std::uint8_t>('0' + number % 10);
  }
  return out + LmdbPages::digits;
}

}  // namespace

LmdbPages::Shape LmdbPages::shape(std::size_t field, std::size_t value_bytes) const noexcept {
  const std::size_t without_value = node_header + digits + suffixes_[field].size();
  const bool is_inline = without_value + value_bytes <= max_inline_node;
  const std::size_t node = without_value + (is_inline ? value_bytes : sizeof(std::uint64_t));
  const std::size_t overflow = is_inline ? 0 : (page_header + value_bytes - 1) / page_bytes + 1;
  return {is_inline, node + node % 2, overflow};
}

std::size_t LmdbPages::appended_bytes(std::span<const Bytes> values) const noexcept {
  std::size_t pages = 0;
  std::size_t free = upper_ - lower_;
  std::size_t field = 0;
  for (const Bytes value : values) {
    const Shape needed = shape(field, value.size());
    pages += needed.overflow;
    if (needed.node + pointer_bytes > free) {
      ++pages;
      free = page_bytes - page_header;
    }
    free -= needed.node + pointer_bytes;
    field = field + 1 < fields() ? field + 1 : 0;
  }
  return pages * page_bytes;
}

void LmdbPages::append(std::span<const Bytes> values, std::uint8_t* out) {
  for (const Bytes value : values) out = put(value, out);
}

void LmdbPages::finish(std::uint8_t* out) {
  if (has_leaf()) put_leaf(out);
}

std::vector<std::int64_t> LmdbPages::take_starts() {
  if (fields() == 0) return {};
  const std::size_t known = has_leaf() ? first_entry_ : entries();
  const std::size_t stop = known - known % fields();
  const auto end = starts_.begin() + static_cast<std::ptrdiff_t>(stop - taken_);
  std::vector<std::int64_t> taken(starts_.begin(), end);
  starts_.erase(starts_.begin(), end);
  taken_ = stop;
  return taken;
}

std::uint8_t* LmdbPages::put(Bytes value, std::uint8_t* out) {
  const std::size_t entry = entries();
  const std::string& suffix = suffixes_[entry % fields()];
  const Shape needed = shape(entry % fields(), value.size());
  const std::uint64_t run = next_page_;
  if (!needed.is_inline) out = put_run(value, needed.overflow, out);
  if (needed.node + pointer_bytes > upper_ - lower_) out = put_leaf(out);
  if (!has_leaf()) first_entry_ = entry;

  upper_ -= needed.node;
  put_number(leaf_.data() + lower_, static_cast<std::uint16_t>(upper_));
  lower_ += pointer_bytes;
  std::uint8_t* node = leaf_.data() + upper_;
  node = put_number(node, static_cast<std::uint32_t>(value.size()));
  node = put_number(node, needed.is_inline ? std::uint16_t{0} : big_value_flag);
  node = put_number(node, static_cast<std::uint16_t>(digits + suffix.size()));
  node = put_digits(node, entry / fields());
  node = put_bytes(node, suffix.data(), suffix.size());
  if (needed.is_inline) {
    starts_.push_back(node - leaf_.data());
    put_bytes(node, value.data(), value.size());
  } else {
    starts_.push_back(static_cast<std::int64_t>(run * page_bytes + page_header));
    put_number(node, run);
  }
  return out;
}

std::uint8_t* LmdbPages::put_run(Bytes value, std::size_t pages, std::uint8_t* out) noexcept {
  out = put_number(out, next_page_);
  out = put_number(out, std::uint16_t{0});
  out = put_number(out, overflow_flag);
  out = put_number(out, static_cast<std::uint32_t>(pages));
  out = put_bytes(out, value.data(), value.size());
  next_page_ += pages;
  overflow_pages_ += pages;
  return put_zeros(out, pages * page_bytes - page_header - value.size());
}

std::uint8_t* LmdbPages::put_leaf(std::uint8_t* out) {
  std::uint8_t* head = put_number(leaf_.data(), next_page_);
  head = put_number(head, std::uint16_t{0});
  head = put_number(head, leaf_flag);
  head = put_number(head, static_cast<std::uint16_t>(lower_));
  put_number(head, static_cast<std::uint16_t>(upper_));
  const auto page_start = static_cast<std::int64_t>(next_page_ * page_bytes);
  for (std::size_t at = first_entry_ - taken_; at < starts_.size(); ++at) {
    // Runs begin behind the meta pages: up to the first one's end it is an inline value's place.
    if (starts_[at] <= static_cast<std::int64_t>(page_bytes)) starts_[at] += page_start;
  }
  leaves_.push_back(
      {static_cast<std::int64_t>(first_entry_), static_cast<std::int64_t>(next_page_)});
  ++next_page_;
  out = put_bytes(out, leaf_.data(), page_bytes);
  leaf_.fill(0);
  lower_ = page_header;
  upper_ = page_bytes;
  return out;
}

}  // namespace fastio
