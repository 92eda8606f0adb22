/// Token ids widened into the slots of a buffer, padded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/simd.h"
#include "core/status.h"
#include "core/thread_pool.h"

namespace fastio {

/// The label that cross entropies leave out.
constexpr std::int64_t ignored = -100;

/// What is stored beside the ids of a sample, and what becomes of it in a batch.
enum class BesideKind {
  copy,   ///< one item for each id, kept as it is
  widen,  ///< one id of 2 or 4 bytes for each id, widened to 8
  loss,   ///< lengths of runs, int32 by turns outside and inside of the loss: ids that count, or
          ///< `ignored`; so is the first of a sample that has `positions`, as nothing foretells it
};

/// Values beside the ids of some samples, and where they go: into slots like those of the ids.
struct BesideSlots {
  BesideKind kind;
  const Bytes* values;             ///< of each sample; must outlive the task
  const std::uint32_t* checksums;  ///< nullptr: not checked
  std::uint8_t* out;
  std::size_t item_bytes;  ///< 1 to 16, as stored; of a copied slot, too, where others have 8
  std::array<std::uint8_t, 16> fill;  ///< of padding, the first `item_bytes`; not for the loss
};

/// Where the tokens of some batches go: sample i into `[slots[i], slots[i + 1])` of `ids`.
///
/// The slots ascend and lie inside the buffers; that is the caller's to check. `mask` (1 for a
/// token, 0 for padding), `positions` (0, 1, ... in each sample, 0 in padding) and `documents` (the
/// sample's of `numbers`, -1 for padding) may be null. Of `origins`, where not null, is the first
/// position of each sample, in place of 0.
struct TokenSlots {
  const std::int64_t* slots;
  std::int64_t* ids;
  std::uint8_t* mask;
  std::int64_t* positions;
  std::int32_t* documents;
  const std::int32_t* numbers;
  const std::int64_t* origins;
  const std::uint32_t* checksums;  ///< nullptr: not checked
  std::int32_t* status;
  std::size_t item_bytes;  ///< 1, 2, 4 or 8, of a stored id
  std::int64_t pad_id;
  std::uint64_t vocabulary;  ///< ids from here on are `corrupt`; 0: whatever is stored is good
  bool at_end;               ///< padding comes before the tokens, not behind them
  std::size_t longest = 0;   ///< tokens of a sample that are laid out, the first; 0: all
};

/// A task that writes every slot wholly. A span that is no whole number of ids or longer than its
/// slot is `bad_shape`, a wrong CRC-32 `bad_checksum`, an id beyond the vocabulary `corrupt`, and
/// what lies `beside` not to be read or not of as many ids `failed`; the slot of such a sample
/// holds padding alone. With `wholes`, spans are parts of these, whose CRC-32s are compared; of
/// what lies beside a whole, the same part comes. Owns `spans`, `beside` and `wholes`, nothing
/// else; `slots` is read while it runs.
[[nodiscard]] std::unique_ptr<Task> fill_tokens_task(std::unique_ptr<Bytes[]> spans,
                                                     const TokenSlots& slots,
                                                     std::vector<BesideSlots> beside = {},
                                                     std::unique_ptr<Bytes[]> wholes = {}) noexcept;

/// Whether ids of so many bytes can be widened.
[[nodiscard]] constexpr bool is_id_size(std::size_t item_bytes) noexcept {
  return item_bytes == 1 || item_bytes == 2 || item_bytes == 4 || item_bytes == 8;
}

/// Widens `count` stored ids of 1, 2, 4 or 8 bytes, aligned or not; the largest of them, 0 for
/// none, and 2**32 - 1 for one that is larger still.
using WidenIds = std::uint32_t (*)(const std::uint8_t* from, std::size_t count,
                                   std::int64_t* out) noexcept;
[[nodiscard]] WidenIds widen_ids(std::size_t item_bytes, SimdLevel level) noexcept;

}  // namespace fastio
