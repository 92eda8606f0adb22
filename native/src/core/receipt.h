/// One number for a set of samples and their bytes, whatever order they come in.
#pragma once

#include <cstdint>
#include <span>

namespace fastio {

/// The sum of `mix(index, checksum)` over all samples, modulo 2**64. `checksums` is empty or as
/// long as `indices`; without them, each counts as 0.
///
/// A sum does not depend on order, and sums of parts add up to the sum of the whole. With
///
///   mix(i, c) = f((i + c * 2**32) ^ key)
///
/// where f is SplitMix64's finaliser, a bijection, a sample that is missing, doubled or has other
/// bytes changes the sum, and several of them do unless 64 random bits happen to be equal. It is no
/// signature: whoever chooses the bytes can find two sets with one number.
[[nodiscard]] std::uint64_t receipt_sum(std::span<const std::int64_t> indices,
                                        std::span<const std::uint32_t> checksums,
                                        std::uint64_t key) noexcept;

}  // namespace fastio
