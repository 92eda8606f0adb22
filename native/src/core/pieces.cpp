#include "core/pieces.h"

#include <bit>

#include "core/checksum.h"

namespace fastio {

Pieces::Pieces(Bytes bytes, std::span<const std::uint32_t> expected, std::size_t piece_bytes)
    : bytes_(bytes),
      expected_(expected),
      shift_(std::countr_zero(piece_bytes)),
      right_(std::make_unique<std::atomic<bool>[]>(expected.size())),
      left_(expected.size()) {}

std::size_t Pieces::compare(std::size_t start, std::size_t stop) noexcept {
  if (is_whole()) return expected_.size();
  for (std::size_t piece = start >> shift_; piece <= (stop - 1) >> shift_; ++piece) {
    if (!right_[piece].load(std::memory_order_acquire) && !compare_piece(piece)) return piece;
  }
  return expected_.size();
}

bool Pieces::compare_piece(std::size_t piece) noexcept {
  if (crc32(bytes_of(piece)) != expected_[piece]) return false;
  if (!right_[piece].exchange(true, std::memory_order_acq_rel)) {
    left_.fetch_sub(1, std::memory_order_acq_rel);
  }
  return true;
}

}  // namespace fastio
