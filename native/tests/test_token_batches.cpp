// Plans of batches by length, and their tokens in slots: every sample once, nothing beside the
// slots.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "check.h"
#include "core/checksum.h"
#include "core/random.h"
#include "core/simd.h"
#include "pictures/worker.h"
#include "tokens/buckets.h"
#include "tokens/fill.h"
#include "tokens/slots.h"

namespace {

std::vector<std::int32_t> lengths_of(std::size_t count, std::int32_t most) {
  std::vector<std::int32_t> lengths(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto random = fastio::philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {1, 2});
    lengths[i] = static_cast<std::int32_t>(random[0] % static_cast<std::uint32_t>(most + 1));
  }
  return lengths;
}

bool is_every_sample_once(std::vector<std::int64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

void test_random_order_is_a_permutation() {
  for (const std::size_t count : {0, 1, 1000, 65536, 65537, 200000}) {
    const auto lengths = lengths_of(count, 500);
    std::vector<std::uint64_t> samples(count);
    fastio::in_random_order({lengths}, {7, 3}, samples);
    std::vector<std::int64_t> order(count);
    bool fits = true;
    for (std::size_t i = 0; i < count; ++i) {
      order[i] = fastio::index_of(samples[i]);
      fits &= fastio::length_of(samples[i]) ==
              static_cast<std::uint32_t>(lengths[static_cast<std::size_t>(order[i])]);
    }
    EXPECT(fits);
    EXPECT(is_every_sample_once(order));
  }
}

void expect_bins(const std::vector<std::int32_t>& lengths, std::size_t window, std::size_t budget,
                 bool is_mixed) {
  std::vector<std::uint64_t> samples(lengths.size());
  fastio::in_random_order({lengths}, {7, 3}, samples);
  const auto bins = fastio::best_fit_bins(samples, {window, budget, 3, is_mixed});
  const std::vector<std::int64_t> order(samples.begin(), samples.end());
  EXPECT(is_every_sample_once(order));
  bool fits = true;
  for (std::size_t bin = 0; bin + 1 < bins.size(); ++bin) {
    std::size_t tokens = 0;
    for (auto i = bins[bin]; i < bins[bin + 1]; ++i) {
      const auto sample = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      tokens += static_cast<std::size_t>(lengths[sample]);
    }
    fits &= tokens <= budget;
  }
  EXPECT(fits);
}

void test_bins_of_two_budgets() {
  for (const std::int32_t most : {0, 40, 70'000}) {
    const auto lengths = lengths_of(3000, most);
    const auto patches = lengths_of(3000, 900);
    for (const std::size_t window : {1, 7, 500, 5000}) {
      for (const std::size_t most_patches : {900, 100'000}) {
        std::vector<std::uint64_t> samples(lengths.size());
        const auto budget = static_cast<std::size_t>(most) * 3 + 8;
        fastio::in_random_order({lengths}, {7, 3}, samples);
        const auto bins = fastio::pair_bins(samples, {window, budget, patches, most_patches, 3});
        const std::vector<std::int64_t> order(samples.begin(), samples.end());
        EXPECT(is_every_sample_once(order));
        bool fits = true;
        for (std::size_t bin = 0; bin + 1 < bins.size(); ++bin) {
          std::size_t used[2] = {0, 0};
          for (auto i = bins[bin]; i < bins[bin + 1]; ++i) {
            const auto sample = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
            used[0] += static_cast<std::size_t>(lengths[sample]);
            used[1] += static_cast<std::size_t>(patches[sample]);
          }
          fits &= used[0] <= budget && used[1] <= most_patches;
        }
        EXPECT(fits);
      }
    }
  }
}

void test_steps_and_bins_hold_every_sample() {
  for (const std::int32_t most : {0, 40, 70'000, 3'000'000}) {
    const auto lengths = lengths_of(3000, most);
    for (const std::size_t window : {1, 7, 500, 5000}) {
      std::vector<std::uint64_t> samples(lengths.size());
      const auto budget = static_cast<std::size_t>(most) * 3 + 8;
      fastio::in_random_order({lengths}, {7, 3}, samples);
      const auto cuts = fastio::bucket_steps(samples, {window, 0, budget, 8, 3});
      EXPECT(is_every_sample_once({samples.begin(), samples.end()}));
      EXPECT(cuts.back() == 3000 && std::is_sorted(cuts.begin(), cuts.end()));
      for (const bool is_mixed : {false, true}) expect_bins(lengths, window, budget, is_mixed);
    }
  }
}

void test_a_part_in_random_order() {
  const std::vector<std::int32_t> lengths{5, 6, 7, 8};
  const std::vector<std::int64_t> part{1, 3};
  std::vector<std::uint64_t> samples(2);
  fastio::in_random_order({lengths, part.data()}, {7, 3}, samples);
  std::sort(samples.begin(), samples.end());
  EXPECT(samples[0] == fastio::with_length(6, 1) && samples[1] == fastio::with_length(8, 3));
}

void test_what_steps_leave() {
  const std::vector<std::int64_t> cuts{0, 2, 3, 5};
  std::vector<std::int64_t> order{130, 4, 64, 0, 63, 9};
  EXPECT(fastio::left_over(order, cuts, std::vector<std::int64_t>{1, 0}, 131) == 3);
  EXPECT(order[0] == 0 && order[1] == 9 && order[2] == 63);
  order = {1, 0};
  EXPECT(fastio::left_over(order, cuts, std::vector<std::int64_t>{-1, 2, 7}, 2) == 2);
  EXPECT(order[0] == 0 && order[1] == 1);
  order = {-1, 5, 6};
  EXPECT(fastio::left_over(order, cuts, std::vector<std::int64_t>{2}, 6) == 1 && order[0] == 5);
  order.clear();
  EXPECT(fastio::left_over(order, cuts, {}, 0) == 0);
}

void test_steps_change_places() {
  std::vector<std::int64_t> order{0, 1, 10, 11, 20, 21, 30, 31, 40};
  EXPECT(fastio::permute_steps(order, 2, std::vector<std::int64_t>{2, 1, 3, 0}));
  EXPECT((order == std::vector<std::int64_t>{20, 21, 10, 11, 30, 31, 0, 1, 40}));
  for (const auto& bad :
       std::vector<std::vector<std::int64_t>>{{0, 0}, {0, 2}, {-1, 0}, {0, 1, 2, 3, 4}}) {
    EXPECT(!fastio::permute_steps(order, 2, bad));
  }
  EXPECT(order[0] == 20 && order[8] == 40);
}

/// The same words by vectors and without, for any number of steps.
void test_many_steps_of_philox() {
  const fastio::PhiloxSteps from{{123, 456}, 7, 8, 9};
  for (std::size_t steps = 0; steps < 40; ++steps) {
    std::vector<std::uint32_t> plain(4 * steps), fast(4 * steps);
    fastio::philox_steps(from, plain, fastio::SimdLevel::none);
    fastio::philox_steps(from, fast, fastio::simd_level());
    EXPECT(plain == fast);
    if (steps > 0) {
      const auto last =
          fastio::philox({static_cast<std::uint32_t>(6 + steps), 0, 8, 9}, {123, 456});
      EXPECT(std::equal(last.begin(), last.end(), plain.end() - 4));
    }
  }
}

void test_dealing_stays_inside() {
  const std::vector<std::int64_t> order{5, 6, 7, 8}, cuts{0, 2, 99}, steps{1, 0, -1, 7};
  std::vector<std::int64_t> out(3, -1);
  EXPECT(fastio::deal_steps(order, cuts, steps, 0, 1, out) == 3);
  EXPECT((out == std::vector<std::int64_t>{7, 8, 5}));
}

/// Runs of slots of every length, with a slot before and behind that must stay.
void test_runs_of_slots(fastio::SimdLevel level) {
  const fastio::SlotLoops& loops = fastio::slot_loops(level);
  constexpr std::int64_t untouched = -7;
  std::vector<std::int64_t> given(70);
  std::iota(given.begin(), given.end(), std::int64_t{1} << 40);
  for (std::size_t count = 0; count < given.size(); ++count) {
    const auto expect = [&](auto fill, auto value_at) {
      auto expected = std::vector(count + 2, static_cast<decltype(value_at(0))>(untouched));
      auto found = expected;
      for (std::size_t i = 0; i < count; ++i) expected[i + 1] = value_at(i);
      fill(found.data() + 1);
      EXPECT(found == expected);
    };
    expect([&](std::int64_t* out) { loops.count_up(-3, count, out); },
           [](std::size_t i) { return static_cast<std::int64_t>(i) - 3; });
    expect([&](std::int64_t* out) { loops.repeat(fastio::ignored, count, out); },
           [](std::size_t) { return fastio::ignored; });
    expect([&](std::int32_t* out) { loops.repeat32(9, count, out); },
           [](std::size_t) { return std::int32_t{9}; });
    expect([&](std::int64_t* out) { loops.copy(given.data(), count, out); },
           [&](std::size_t i) { return given[i]; });
  }
}

/// Fills slots from exact allocations, so that a sanitizer sees a step beside them.
void test_slots_are_filled_and_nothing_else(fastio::SimdLevel level) {
  constexpr std::size_t count = 70;
  for (std::size_t size = 0; size < count; ++size) {
    std::vector<std::uint16_t> stored(size);
    std::iota(stored.begin(), stored.end(), std::uint16_t{65500});
    std::vector<std::uint8_t> bytes(2 * size);
    if (size > 0) std::memcpy(bytes.data(), stored.data(), bytes.size());
    std::vector<std::int64_t> wide(size);
    const auto highest = fastio::widen_ids(2, level)(bytes.data(), size, wide.data());
    EXPECT(std::equal(wide.begin(), wide.end(), stored.begin()));
    EXPECT(highest == (size > 0 ? *std::max_element(stored.begin(), stored.end()) : 0));

    std::vector<std::int64_t> ids(size + 3, -1);
    std::vector<std::int64_t> positions(size + 3, -1);
    std::vector<std::uint8_t> mask(size + 3, 9);
    const std::vector<std::int64_t> slots{0, static_cast<std::int64_t>(size + 3)};
    std::vector<std::int32_t> documents(size + 3, -9);
    std::vector<std::int64_t> targets(size + 3, -9);
    const std::int32_t number = 5;
    const auto outside = static_cast<std::int32_t>(size / 2);
    for (const bool is_whole : {true, false}) {
      const std::vector<std::int32_t> runs{outside,
                                           static_cast<std::int32_t>(size) - outside + !is_whole};
      std::vector<std::uint8_t> loss(2 * sizeof(std::int32_t));
      std::memcpy(loss.data(), runs.data(), loss.size());
      const fastio::Bytes loss_span = loss;
      std::int32_t status = -1;
      auto spans = std::make_unique<fastio::Bytes[]>(1);
      spans[0] = bytes;
      const fastio::TokenSlots to{
          slots.data(), ids.data(), mask.data(), positions.data(), documents.data(),
          &number,      nullptr,    nullptr,     &status,          2,
          77,           0,          true};
      std::vector<float> weights(size);
      for (std::size_t i = 0; i < size; ++i) weights[i] = 0.5F * static_cast<float>(i);
      std::vector<std::uint8_t> weight_bytes(size * sizeof(float));
      if (size > 0) std::memcpy(weight_bytes.data(), weights.data(), weight_bytes.size());
      const fastio::Bytes weight_span = weight_bytes;
      std::vector<float> laid(size + 3, -9);
      std::vector<std::int64_t> widened(size + 3, -9);
      const std::array<std::uint8_t, 16> zero{}, all{255, 255, 255, 255, 255, 255, 255, 255};
      const auto out = [](auto& values) { return reinterpret_cast<std::uint8_t*>(values.data()); };
      const fastio::Bytes id_span = bytes;
      std::vector<fastio::BesideSlots> beside{
          {fastio::BesideKind::loss, &loss_span, nullptr, out(targets), 4, zero},
          {fastio::BesideKind::copy, &weight_span, nullptr, out(laid), sizeof(float), zero},
          {fastio::BesideKind::widen, &id_span, nullptr, out(widened), 2, all}};
      const auto task = fastio::fill_tokens_task(std::move(spans), to, std::move(beside));
      fastio::Worker worker;
      task->run(worker, 0, 1);
      const auto expected = is_whole ? fastio::Status::ok : fastio::Status::failed;
      EXPECT(status == static_cast<std::int32_t>(expected));
      EXPECT(ids[2] == 77 && mask[2] == 0 && positions[2] == 0);
      EXPECT(documents[2] == -1 && targets[2] == fastio::ignored);
      EXPECT(laid[2] == 0 && widened[2] == -1);
      for (std::size_t i = 0; i < size; ++i) {
        const bool counts = is_whole && i >= size / 2 && i > 0;  // nothing foretells the first
        EXPECT(ids[3 + i] == (is_whole ? wide[i] : 77));
        EXPECT(documents[3 + i] == (is_whole ? 5 : -1));
        EXPECT(targets[3 + i] == (counts ? wide[i] : fastio::ignored));
        EXPECT(laid[3 + i] == (is_whole ? weights[i] : 0));
        EXPECT(widened[3 + i] == (is_whole ? wide[i] : -1));
      }
    }
  }
}

/// Ids of 32 bits keep their highest bit.
void test_wide_ids(fastio::SimdLevel level) {
  for (std::size_t size = 0; size < 70; ++size) {
    std::vector<std::uint32_t> stored(size);
    std::iota(stored.begin(), stored.end(), 0xFFFFFF80U);
    std::vector<std::uint8_t> bytes(4 * size);
    if (size > 0) std::memcpy(bytes.data(), stored.data(), bytes.size());
    std::vector<std::int64_t> wide(size);
    const auto highest = fastio::widen_ids(4, level)(bytes.data(), size, wide.data());
    EXPECT(std::equal(wide.begin(), wide.end(), stored.begin()));
    EXPECT(highest == (size > 0 ? stored.back() : 0));
  }
}

/// Ids of 8 and 64 bits; one above 2**32 is told as the largest number of 32 bits.
void test_narrow_and_long_ids() {
  std::vector<std::int64_t> wide(3);
  const std::vector<std::uint8_t> narrow{7, 255, 0};
  EXPECT(fastio::widen_ids(1, fastio::simd_level())(narrow.data(), 3, wide.data()) == 255);
  EXPECT((wide == std::vector<std::int64_t>{7, 255, 0}));
  for (const std::uint64_t highest : {std::uint64_t{70000}, std::uint64_t{1} << 40}) {
    const std::vector<std::uint64_t> stored{1, highest, 2};
    std::vector<std::uint8_t> bytes(24);
    std::memcpy(bytes.data(), stored.data(), bytes.size());
    const auto found = fastio::widen_ids(8, fastio::simd_level())(bytes.data(), 3, wide.data());
    EXPECT(found == std::min<std::uint64_t>(highest, 0xFFFFFFFFU));
    EXPECT(wide[1] == static_cast<std::int64_t>(highest));
  }
}

/// Parts of a value are compared by its checksum, and count from where they are told to.
void test_parts_of_values() {
  std::vector<std::uint8_t> value(40);
  std::iota(value.begin(), value.end(), std::uint8_t{1});
  const std::uint32_t right = fastio::crc32_routines(fastio::simd_level()).crc32(value);
  for (const bool is_damaged : {false, true}) {
    const std::vector<std::uint32_t> checksums{right, right + is_damaged};
    const std::vector<std::int64_t> slots{0, 4, 8}, origins{0, 4};
    std::vector<std::int64_t> ids(8, -1), positions(8, -1);
    std::vector<std::int32_t> status(2, -1);
    auto parts = std::make_unique<fastio::Bytes[]>(2),
         wholes = std::make_unique<fastio::Bytes[]>(2);
    for (std::size_t i = 0; i < 2; ++i) {
      wholes[i] = value;
      parts[i] = fastio::Bytes(value).subspan(10 + 10 * i, 8);
    }
    const fastio::TokenSlots to{slots.data(),
                                ids.data(),
                                nullptr,
                                positions.data(),
                                nullptr,
                                nullptr,
                                origins.data(),
                                checksums.data(),
                                status.data(),
                                2,
                                0,
                                0,
                                false};
    const auto task = fastio::fill_tokens_task(std::move(parts), to, {}, std::move(wholes));
    fastio::Worker worker;
    task->run(worker, 0, 2);
    const auto second = is_damaged ? fastio::Status::bad_checksum : fastio::Status::ok;
    EXPECT(status[0] == 0 && status[1] == static_cast<std::int32_t>(second));
    EXPECT(ids[0] == 11 + 12 * 256 && positions[3] == 3);
    EXPECT(ids[4] == (is_damaged ? 0 : 21 + 22 * 256) && positions[7] == (is_damaged ? 0 : 7));
  }
}

}  // namespace

int main() {
  test_narrow_and_long_ids();
  test_parts_of_values();
  test_random_order_is_a_permutation();
  test_steps_and_bins_hold_every_sample();
  test_bins_of_two_budgets();
  test_a_part_in_random_order();
  test_what_steps_leave();
  test_steps_change_places();
  test_many_steps_of_philox();
  test_dealing_stays_inside();
  for (const auto level :
       {fastio::SimdLevel::none, fastio::SimdLevel::avx2, fastio::SimdLevel::avx512}) {
    if (level > fastio::simd_level()) continue;
    test_slots_are_filled_and_nothing_else(level);
    test_wide_ids(level);
    test_runs_of_slots(level);
  }
  return failures;
}
