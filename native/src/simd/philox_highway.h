// Philox4x32-10 in vectors, a counter in each lane: one source for all instruction sets, included
// by one file for each.
#include "core/random.h"
#include "simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fastio {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<std::uint32_t> words_tag;
constexpr hn::RepartitionToWide<decltype(words_tag)> products_tag;
using Words = hn::Vec<decltype(words_tag)>;
constexpr std::size_t lanes = hn::MaxLanes(words_tag);

struct Product {
  Words high;
  Words low;
};

HWY_INLINE Product multiplied(Words x, Words factor) noexcept {
  const auto even = hn::MulEven(x, factor);
  const auto upper = hn::BitCast(words_tag, hn::ShiftRight<32>(hn::BitCast(products_tag, x)));
  const auto odd = hn::MulEven(upper, factor);
  return {
      hn::OddEven(hn::BitCast(words_tag, odd), hn::BitCast(words_tag, hn::ShiftRight<32>(even))),
      hn::OddEven(hn::BitCast(words_tag, hn::ShiftLeft<32>(odd)), hn::BitCast(words_tag, even))};
}

std::size_t steps(const PhiloxSteps& from, std::size_t words, std::uint32_t* out) noexcept {
  const Words first_factor = hn::Set(words_tag, 0xD2511F53);
  const Words second_factor = hn::Set(words_tag, 0xCD9E8D57);
  Words counters = hn::Iota(words_tag, static_cast<std::uint32_t>(from.first));
  std::size_t done = 0;
  for (; done + 4 * lanes <= words; done += 4 * lanes) {
    Words a = counters;
    Words b = hn::Zero(words_tag);
    Words c = hn::Set(words_tag, from.part);
    Words d = hn::Set(words_tag, from.epoch);
    std::uint32_t key[2] = {from.key[0], from.key[1]};
    for (int round = 0; round < 10; ++round) {
      const Product first = multiplied(a, first_factor);
      const Product second = multiplied(c, second_factor);
      a = hn::Xor(hn::Xor(second.high, b), hn::Set(words_tag, key[0]));
      b = second.low;
      c = hn::Xor(hn::Xor(first.high, d), hn::Set(words_tag, key[1]));
      d = first.low;
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    hn::StoreInterleaved4(a, b, c, d, words_tag, out + done);
    counters = hn::Add(counters, hn::Set(words_tag, std::uint32_t{lanes}));
  }
  return done;
}

}  // namespace
}  // namespace fastio
HWY_AFTER_NAMESPACE();
