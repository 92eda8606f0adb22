#include "tokens/fill.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/checksum.h"
#include "tokens/slots.h"
#include "tokens/widen.h"

namespace fastio {
namespace {

/// Samples of similar length lie anywhere in the file: waiting for the memory of each in turn
/// would take longer than all the rest.
constexpr std::size_t samples_ahead = 6;

/// Inlined: GCC 12 takes a function that only prefetches for one without effects, and drops its
/// calls, which cost a seventh of a batch's time.
[[gnu::always_inline]] inline void prefetch(Bytes span) noexcept {
  constexpr std::size_t line = 64;
  constexpr std::size_t most = 16 * line;  // from there on the processor sees it by itself
  for (std::size_t at = 0; at < std::min(span.size(), most); at += line) {
    __builtin_prefetch(span.data() + at);
  }
}

class FillTokensTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.fill_tokens"; }

  FillTokensTask(std::unique_ptr<Bytes[]> spans, const TokenSlots& to,
                 std::vector<BesideSlots> beside, std::unique_ptr<Bytes[]> wholes) noexcept
      : spans_(std::move(spans)),
        wholes_(std::move(wholes)),
        to_(to),
        beside_(std::move(beside)),
        widen_(widen_ids(to.item_bytes, simd_level())),
        loops_(slot_loops(simd_level())),
        crc32_(crc32_routines(simd_level()).crc32),
        copy_(crc32_routines(simd_level()).copy) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    Compared compared;
    for (std::size_t i = first; i < std::min(first + samples_ahead, last); ++i) {
      prefetch(spans_[i]);
      for (const BesideSlots& each : beside_) prefetch(each.values[i]);
    }
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t next = i + samples_ahead < last ? i + samples_ahead : i;
      prefetch(spans_[next]);
      const auto start = static_cast<std::size_t>(to_.slots[i]);
      const std::size_t width = static_cast<std::size_t>(to_.slots[i + 1]) - start;
      const Status status = fill(i, next, start, width, compared);
      if (status != Status::ok) pad(start, width);
      to_.status[i] = static_cast<std::int32_t>(status);
    }
  }

 private:
  /// What was compared last: samples that follow may be other parts of it.
  struct Compared {
    const std::uint8_t* data = nullptr;
    std::uint32_t checksum = 0;
    bool is_good = false;
  };

  [[nodiscard]] bool is_as_packed(std::size_t i, Compared& compared) const noexcept {
    const std::uint32_t checksum = to_.checksums[i];
    if (!wholes_) return crc32_(spans_[i]) == checksum;
    const Bytes whole = wholes_[i];
    if (compared.data != whole.data() || compared.checksum != checksum) {
      compared = {whole.data(), checksum, crc32_(whole) == checksum};
    }
    return compared.is_good;
  }

  /// Fills the slot of sample i. What lies beside sample `next` is prefetched between its fields:
  /// all at once would be more than the processor fetches at a time, and it would wait.
  [[nodiscard]] Status fill(std::size_t i, std::size_t next, std::size_t start, std::size_t width,
                            Compared& compared) const noexcept {
    const Bytes span = spans_[i];
    const std::size_t ids = span.size() / to_.item_bytes;
    const std::size_t count = to_.longest == 0 ? ids : std::min(ids, to_.longest);
    if (ids * to_.item_bytes != span.size() || count > width) return Status::bad_shape;
    if (wholes_ && wholes_[i].size() % to_.item_bytes != 0) return Status::bad_shape;
    if (to_.checksums != nullptr && !is_as_packed(i, compared)) return Status::bad_checksum;
    const std::size_t first = start + (to_.at_end ? width - count : 0);
    const std::uint32_t highest = widen_(span.data(), count, to_.ids + first);
    if (to_.vocabulary != 0 && count > 0 && highest >= to_.vocabulary) return Status::corrupt;
    for (const BesideSlots& each : beside_) {
      prefetch(each.values[next]);
      if (!lay_beside(each, i, first, part_of(i, count))) return Status::failed;
    }
    if (to_.mask != nullptr) std::fill_n(to_.mask + first, count, std::uint8_t{1});
    if (to_.positions != nullptr) {
      const std::int64_t origin = to_.origins == nullptr ? 0 : to_.origins[i];
      loops_.count_up(origin, count, to_.positions + first);
    }
    if (to_.documents != nullptr) loops_.repeat32(to_.numbers[i], count, to_.documents + first);
    if (count < width) pad(to_.at_end ? start : first + count, width - count);
    return Status::ok;
  }

  /// Ids of a sample: `count` of `whole`, from `from` on.
  struct Part {
    std::size_t from, count, whole;
  };

  /// The ids of sample i that are laid out, `count` from where its span begins.
  [[nodiscard]] Part part_of(std::size_t i, std::size_t count) const noexcept {
    if (!wholes_ || spans_[i].empty()) return {0, count, spans_[i].size() / to_.item_bytes};
    const auto before = static_cast<std::size_t>(spans_[i].data() - wholes_[i].data());
    return {before / to_.item_bytes, count, wholes_[i].size() / to_.item_bytes};
  }

  /// Writes what a sample has beside a part of its ids; false where that cannot be read, or is not
  /// as long as all of its ids.
  [[nodiscard]] bool lay_beside(const BesideSlots& to, std::size_t i, std::size_t first,
                                Part part) const noexcept {
    const Bytes value = to.values[i];
    if (to.kind == BesideKind::copy && to.checksums != nullptr && part.count == part.whole) {
      if (value.size() != part.whole * to.item_bytes) return false;
      return copy_(value, to.out + first * to.item_bytes) == to.checksums[i];
    }
    if (to.checksums != nullptr && crc32_(value) != to.checksums[i]) return false;
    if (to.kind == BesideKind::loss) return mark_counted(value, slots_of(to), first, part);
    if (value.size() != part.whole * to.item_bytes) return false;
    const std::uint8_t* values = value.data() + part.from * to.item_bytes;
    if (to.kind == BesideKind::widen) {
      (void)widen_ids(to.item_bytes, simd_level())(values, part.count, slots_of(to) + first);
    } else if (part.count > 0) {
      std::memcpy(to.out + first * to.item_bytes, values, part.count * to.item_bytes);
    }
    return true;
  }

  static std::int64_t* slots_of(const BesideSlots& to) noexcept {
    return reinterpret_cast<std::int64_t*>(to.out);
  }

  /// Writes the ids that count in the loss; false where that is not known.
  [[nodiscard]] bool mark_counted(Bytes runs, std::int64_t* targets, std::size_t first,
                                  Part part) const noexcept {
    if (runs.size() % sizeof(std::int32_t) != 0) return false;
    std::size_t at = 0;
    for (std::size_t run = 0; run < runs.size() / sizeof(std::int32_t); ++run) {
      std::int32_t length = 0;
      std::memcpy(&length, runs.data() + run * sizeof length, sizeof length);
      if (length < 0 || static_cast<std::size_t>(length) > part.whole - at) return false;
      const auto end = at + static_cast<std::size_t>(length);
      const std::size_t from = std::max(at, part.from);
      const std::size_t to = std::min(end, part.from + part.count);
      if (from < to) {
        const std::size_t slot = first + from - part.from;
        if (run % 2 == 1) {
          loops_.copy(to_.ids + slot, to - from, targets + slot);
        } else {
          loops_.repeat(ignored, to - from, targets + slot);
        }
      }
      at = end;
    }
    if (to_.positions != nullptr && part.count > 0) targets[first] = ignored;
    return at == part.whole;
  }

  void pad(std::size_t first, std::size_t count) const noexcept {
    std::fill_n(to_.ids + first, count, to_.pad_id);
    if (to_.mask != nullptr) std::fill_n(to_.mask + first, count, std::uint8_t{0});
    if (to_.positions != nullptr) std::fill_n(to_.positions + first, count, std::int64_t{0});
    if (to_.documents != nullptr) std::fill_n(to_.documents + first, count, std::int32_t{-1});
    for (const BesideSlots& each : beside_) pad_beside(each, first, count);
  }

  static void pad_beside(const BesideSlots& to, std::size_t first, std::size_t count) noexcept {
    if (to.kind == BesideKind::loss) {
      std::fill_n(slots_of(to) + first, count, ignored);
      return;
    }
    const std::size_t size = to.kind == BesideKind::copy ? to.item_bytes : sizeof(std::int64_t);
    std::uint8_t* out = to.out + first * size;
    if (std::all_of(to.fill.begin(), to.fill.begin() + size, [](auto byte) { return byte == 0; })) {
      std::fill_n(out, count * size, std::uint8_t{0});
      return;
    }
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + i * size, to.fill.data(), size);
  }

  const std::unique_ptr<Bytes[]> spans_;
  const std::unique_ptr<Bytes[]> wholes_;
  const TokenSlots to_;
  const std::vector<BesideSlots> beside_;
  const WidenIds widen_;
  const SlotLoops& loops_;
  std::uint32_t (*const crc32_)(Bytes) noexcept;
  std::uint32_t (*const copy_)(Bytes, std::uint8_t*) noexcept;
};

}  // namespace

std::unique_ptr<Task> fill_tokens_task(std::unique_ptr<Bytes[]> spans, const TokenSlots& slots,
                                       std::vector<BesideSlots> beside,
                                       std::unique_ptr<Bytes[]> wholes) noexcept {
  return std::make_unique<FillTokensTask>(std::move(spans), slots, std::move(beside),
                                          std::move(wholes));
}

namespace {

std::uint32_t widen64(const std::uint8_t* from, std::size_t count, std::int64_t* out) noexcept {
  std::uint64_t highest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    highest = std::max(highest, id);
    out[i] = static_cast<std::int64_t>(id);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(highest, 0xFFFFFFFFu));
}

}  // namespace

const SlotLoops& slot_loops([[maybe_unused]] SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::avx512) return avx512_slot_loops;
  if (level >= SimdLevel::avx2) return avx2_slot_loops;
#endif
  return plain_slot_loops;
}

WidenIds widen_ids(std::size_t item_bytes, [[maybe_unused]] SimdLevel level) noexcept {
  if (item_bytes == 1) return widen<std::uint8_t>;
  if (item_bytes == 8) return widen64;
#if defined(__x86_64__)
  if (level >= SimdLevel::avx512) return item_bytes == 2 ? avx512_widen16 : avx512_widen32;
  if (level >= SimdLevel::avx2) return item_bytes == 2 ? avx2_widen16 : avx2_widen32;
#endif
  return item_bytes == 2 ? widen<std::uint16_t> : widen<std::uint32_t>;
}

}  // namespace fastio
