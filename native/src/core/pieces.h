/// Bytes that are compared with their checksums piece by piece, when a piece is first needed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/bytes.h"

namespace fastio {

/// A run of bytes with a CRC-32 for each `piece_bytes` of it, the last piece may be shorter.
/// Refers to both; thread-safe: a piece that two threads need at once may be compared twice.
class Pieces {
 public:
  /// `expected` has an entry for each piece; `piece_bytes` is a power of two: a look-up divides by
  /// it three times.
  Pieces(Bytes bytes, std::span<const std::uint32_t> expected, std::size_t piece_bytes);

  /// How many pieces so many bytes have.
  [[nodiscard]] static constexpr std::size_t count(std::size_t bytes,
                                                   std::size_t piece_bytes) noexcept {
    return bytes / piece_bytes + (bytes % piece_bytes != 0 ? 1 : 0);
  }

  /// Whether every piece was found to be right.
  [[nodiscard]] bool is_whole() const noexcept {
    return left_.load(std::memory_order_acquire) == 0;
  }

  /// Compares the pieces of these bytes (start < stop, inside of the run) that were not found to be
  /// right before. Returns the first one that differs, and the number of all pieces when none does.
  [[nodiscard]] std::size_t compare(std::size_t start, std::size_t stop) noexcept;

  /// As `compare` for the piece that has this byte; false when it differs.
  [[nodiscard]] bool is_right(std::size_t at) noexcept {
    const std::size_t piece = at >> shift_;
    return right_[piece].load(std::memory_order_acquire) || compare_piece(piece);
  }

  /// The piece that has this byte; nothing when it was found to be right before.
  [[nodiscard]] Bytes unseen(std::size_t at) const noexcept {
    const std::size_t piece = at >> shift_;
    return right_[piece].load(std::memory_order_relaxed) ? Bytes() : bytes_of(piece);
  }

 private:
  [[nodiscard]] bool compare_piece(std::size_t piece) noexcept;

  [[nodiscard]] Bytes bytes_of(std::size_t piece) const noexcept {
    const std::size_t start = piece << shift_;
    return bytes_.subspan(start, std::min(std::size_t{1} << shift_, bytes_.size() - start));
  }

  Bytes bytes_;
  std::span<const std::uint32_t> expected_;
  int shift_;  // to the piece that has a byte
  std::unique_ptr<std::atomic<bool>[]> right_;
  std::atomic<std::size_t> left_;
};

}  // namespace fastio
