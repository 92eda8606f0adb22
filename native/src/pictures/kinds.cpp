#include "pictures/kinds.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace fastio {

namespace {

#define FASTIO_KIND_ADDRESS(name) &name##_kind,
constexpr std::array rows{FASTIO_PICTURE_KINDS(FASTIO_KIND_ADDRESS)};
#undef FASTIO_KIND_ADDRESS

/// Kinds that Python has added: what they are is one fact for the process, as the rows above.
struct AddedKinds {
  struct Entry {
    Signature signature;
    std::int32_t number;
  };
  std::array<Entry, 256> entries{};
  std::atomic<std::size_t> count{0};  // of entries that are complete
  std::int32_t next = static_cast<std::int32_t>(rows.size()) + 1;
};
constinit AddedKinds added;

bool matches(const Signature& signature, Bytes file) noexcept {
  return file.size() >= signature.place + signature.size &&
         std::memcmp(file.data() + signature.place, signature.bytes, signature.size) == 0;
}

}  // namespace

std::span<const PictureKind* const> native_kinds() noexcept {
  return rows;
}

const PictureKind* native_kind(ImageKind kind) noexcept {
  const auto number = static_cast<std::size_t>(kind);
  return number >= 1 && number <= rows.size() ? rows[number - 1] : nullptr;
}

ImageKind add_kind(std::span<const Signature> signatures) noexcept {
  const std::size_t count = added.count.load(std::memory_order_relaxed);
  if (signatures.size() > added.entries.size() - count) return ImageKind::unknown;
  const std::int32_t number = added.next++;
  for (std::size_t i = 0; i < signatures.size(); ++i) {
    added.entries[count + i] = {signatures[i], number};
  }
  added.count.store(count + signatures.size(), std::memory_order_release);
  return ImageKind{number};
}

ImageKind image_kind(Bytes file) noexcept {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->matches(file)) return ImageKind{static_cast<std::int32_t>(i) + 1};
  }
  const std::size_t count = added.count.load(std::memory_order_acquire);
  const auto* const begin = added.entries.data();
  const auto* const entry = std::find_if(
      begin, begin + count,
      [&](const AddedKinds::Entry& candidate) { return matches(candidate.signature, file); });
  return entry == begin + count ? ImageKind::unknown : ImageKind{entry->number};
}

RegionDecoder* RegionDecoders::of(ImageKind kind) noexcept {
  const PictureKind* const row = native_kind(kind);
  if (row == nullptr || row->make_decoder == nullptr) return nullptr;
  std::unique_ptr<RegionDecoder>& decoder = decoders_[static_cast<std::size_t>(kind) - 1];
  if (!decoder) decoder = row->make_decoder();
  return decoder.get();
}

}  // namespace fastio
