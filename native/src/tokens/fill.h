/// Token ids widened into the slots of a buffer, padded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/bytes.h"
#include "core/simd.h"
#include "core/status.h"
#include "core/thread_pool.h"

namespace fastio {

/// The label that cross entropies leave out.
constexpr std::int64_t ignored = -100;

/// Where the tokens of some batches go: sample i into `[slots[i], slots[i + 1])` of `ids`.
///
/// The slots ascend and lie inside the buffers; that is the caller's to check. `mask` (1 for a
/// token, 0 for padding), `positions` (0, 1, ... in each sample, 0 in padding) and `documents` (the
/// sample's of `numbers`, -1 for padding) may be null; so may `targets` (the ids that count in the
/// loss, `ignored` for others and for padding), which `loss` makes.
struct TokenSlots {
  const std::int64_t* slots;
  std::int64_t* ids;
  std::uint8_t* mask;
  std::int64_t* positions;
  std::int32_t* documents;
  const std::int32_t* numbers;
  std::int64_t* targets;
  const Bytes* loss;                    ///< of each sample; must outlive the task
  const std::uint32_t* loss_checksums;  ///< nullptr: not checked
  const std::uint32_t* checksums;       ///< nullptr: not checked
  std::int32_t* status;
  std::size_t item_bytes;  ///< 2 or 4, of a stored id
  std::int64_t pad_id;
  std::uint64_t vocabulary;  ///< ids from here on are `corrupt`; 0: whatever is stored is good
  bool at_end;               ///< padding comes before the tokens, not behind them
};

/// A task that writes every slot wholly. A span that is no whole number of ids or longer than its
/// slot is `bad_shape`, a wrong CRC-32 `bad_checksum`, an id beyond the vocabulary `corrupt`, and
/// what `loss` says not to be read or not of as many ids `failed`; the slot of such a sample holds
/// padding alone. Owns `spans`, nothing else; `slots` is read while it runs.
///
/// `loss` holds lengths of runs, int32 little endian, by turns of ids outside and inside of the
/// loss.
[[nodiscard]] std::unique_ptr<Task> fill_tokens_task(std::unique_ptr<Bytes[]> spans,
                                                     const TokenSlots& slots) noexcept;

/// Widens `count` stored ids of 2 or 4 bytes, aligned or not; the largest of them, 0 for none.
using WidenIds = std::uint32_t (*)(const std::uint8_t* from, std::size_t count,
                                   std::int64_t* out) noexcept;
[[nodiscard]] WidenIds widen_ids(std::size_t item_bytes, SimdLevel level) noexcept;

}  // namespace fastio
