/// Runs of bytes, and the one place where offsets from disk become pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fastio {

/// Read-only bytes owned by somebody else.
using Bytes = std::span<const std::uint8_t>;

/// Spans as they come from a store: `sizes[i]` bytes from `starts[i]` of `buffers[shard[i]]`.
/// The three arrays have equal lengths. Nothing in them is trusted.
struct SpanTable {
  std::span<const Bytes> buffers;
  std::span<const std::int32_t> shard;
  std::span<const std::int64_t> starts;
  std::span<const std::int64_t> sizes;

  [[nodiscard]] std::size_t size() const noexcept { return starts.size(); }
};

/// The spans of all samples of a store, shard behind shard: those of shard k end before sample
/// `ends[k]`. Sample i's are `starts[i * stride]` and `sizes[i * stride]`: with a stride of 2 they
/// may lie side by side, so that a look-up waits for one line of memory, not for two.
struct SpanIndex {
  std::span<const std::int64_t> ends;
  const std::int64_t* starts;
  const std::int64_t* sizes;
  const std::uint32_t* checksums;  ///< nullptr: none
  std::size_t stride;
  std::size_t count;
};

/// Where `pick` writes: one entry for each of the samples asked for; `checksums` where the index
/// has some.
struct PickedSpans {
  std::int32_t* shard;
  std::int64_t* starts;
  std::int64_t* sizes;
  std::uint32_t* checksums;
};

/// Whether [start, start + size) lies inside `limit` bytes; safe against overflow.
[[nodiscard]] constexpr bool fits(std::int64_t start, std::int64_t size,
                                  std::size_t limit) noexcept {
  return start >= 0 && size >= 0 && static_cast<std::uint64_t>(start) <= limit &&
         static_cast<std::uint64_t>(size) <= limit - static_cast<std::uint64_t>(start);
}

/// The position of the first span that leaves its buffer (or names none), and table.size() when
/// all are good. Looks at the sizes of buffers only. Thread-safe.
[[nodiscard]] std::size_t first_outside(const SpanTable& table) noexcept;

/// Writes every span as a pointer and a size to `out` (as long as the table).
///
/// Returns the position of the first span that leaves its buffer (or names none), and
/// table.size() when all are good. Call it before any thread starts; thread-safe.
[[nodiscard]] std::size_t resolve(const SpanTable& table, std::span<Bytes> out) noexcept;

/// Copies the entries of some samples, which may lie anywhere in the index: what comes next is
/// asked of the memory ahead.
///
/// Returns the position of the first sample that there is not, and samples.size() otherwise.
[[nodiscard]] std::size_t pick(const SpanIndex& index, std::span<const std::int64_t> samples,
                               const PickedSpans& out) noexcept;

}  // namespace fastio
