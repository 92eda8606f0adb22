/// What batches of token ids share: their layout, and who lends them memory and threads.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "module.h"

namespace fastio::python {

/// How samples become a batch: see PadCollate, PackCollate and ChunkCollate.
enum class TokenLayout { pad, pack, chunk };

/// What is equal for all batches of a loader.
struct TokenRules {
  TokenLayout layout;
  std::int64_t width;  ///< pad: a multiple of it; pack: tokens of a batch, or 0; chunk: of a row
  std::int64_t pad_id;
  bool at_end;  ///< padding comes first
  std::size_t item_bytes;
  std::uint64_t vocabulary;

  [[nodiscard]] bool has_mask() const { return layout != TokenLayout::pack; }
  [[nodiscard]] bool has_positions() const { return layout == TokenLayout::pack; }
  [[nodiscard]] bool has_lengths() const { return layout != TokenLayout::chunk; }

  /// Bytes for each slot of a batch.
  [[nodiscard]] std::int64_t slot_bytes() const { return 8 + 8 * has_positions() + has_mask(); }
};

/// Memory of several batches: arrays of them lie one after the other.
struct TokenMemory {
  std::shared_ptr<void> owner;  ///< of what tensors share
  nb::object pinned;            ///< torch's tensor over it, where it is pinned
  std::uint8_t* data = nullptr;
};

/// Lends memory and threads to the batches of one process. Several Python threads may ask at once.
class TokenFiller {
 public:
  TokenFiller(const TokenRules& rules, nb::object pool, nb::object ring, nb::object from_dlpack,
              nb::object pinned)
      : rules(rules),
        pool(std::move(pool)),
        from_dlpack(std::move(from_dlpack)),
        ring_(std::move(ring)),
        pinned_(std::move(pinned)) {}

  /// At least `nbytes`. A ring's buffer is as large as the largest so far, so that it can be lent
  /// again.
  TokenMemory take(std::size_t nbytes) {
    std::size_t largest = largest_.load();
    while (largest < nbytes && !largest_.compare_exchange_weak(largest, nbytes)) continue;
    if (!pinned_.is_none()) return take_pinned(nbytes);
    std::shared_ptr<fastio::BufferRing::Lease> lease =
        nb::cast<fastio::BufferRing&>(ring_).acquire(largest_);
    if (!lease) throw std::bad_alloc();
    std::uint8_t* data = lease->data();
    return {std::move(lease), {}, data};
  }

  /// Memory for a few numbers of each sample, which users may keep for long.
  TokenMemory take_apart(std::size_t nbytes) {
    if (!pinned_.is_none()) return take_pinned(nbytes);
    std::shared_ptr<std::uint8_t[]> memory(new std::uint8_t[nbytes]);
    std::uint8_t* data = memory.get();
    return {std::move(memory), {}, data};
  }

  /// Counts a job and the batches that it fills.
  void count(std::size_t batches) {
    ++jobs_;
    batches_ += batches;
  }

  [[nodiscard]] std::size_t largest() const { return largest_; }
  [[nodiscard]] double job_batches() const {
    const std::size_t jobs = jobs_;
    return jobs == 0 ? 1.0 : static_cast<double>(batches_) / static_cast<double>(jobs);
  }
  [[nodiscard]] const nb::object& pinned() const { return pinned_; }

  const TokenRules rules;
  const nb::object pool;
  const nb::object from_dlpack;
  const nb::str names[6] = {nb::str("input_ids"),    nb::str("attention_mask"),
                            nb::str("position_ids"), nb::str("cu_seqlens"),
                            nb::str("lengths"),      nb::str("labels")};

 private:
  TokenMemory take_pinned(std::size_t nbytes) {
    nb::object tensor = pinned_.attr("take")(nbytes);
    const auto address = nb::cast<std::uintptr_t>(tensor.attr("data_ptr")());
    return {{}, std::move(tensor), reinterpret_cast<std::uint8_t*>(address)};
  }

  const nb::object ring_;
  const nb::object pinned_;
  std::atomic<std::size_t> largest_ = 0;
  std::atomic<std::size_t> jobs_ = 0;
  std::atomic<std::size_t> batches_ = 0;
};

}  // namespace fastio::python
