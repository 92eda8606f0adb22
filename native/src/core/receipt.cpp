#include "core/receipt.h"

#include <cstddef>

namespace fastio {
namespace {

constexpr std::uint64_t finalise(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

constexpr std::uint64_t mix(std::int64_t index, std::uint32_t checksum,
                            std::uint64_t key) noexcept {
  const auto low = static_cast<std::uint64_t>(index);
  return finalise((low + (std::uint64_t{checksum} << 32)) ^ key);
}

}  // namespace

std::uint64_t receipt_sum(std::span<const std::int64_t> indices,
                          std::span<const std::uint32_t> checksums, std::uint64_t key) noexcept {
  std::uint64_t sum = 0;
  if (checksums.empty()) {
    for (const std::int64_t index : indices) sum += mix(index, 0, key);
    return sum;
  }
  for (std::size_t i = 0; i < indices.size(); ++i) sum += mix(indices[i], checksums[i], key);
  return sum;
}

}  // namespace fastio
