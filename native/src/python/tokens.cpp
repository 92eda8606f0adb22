// Token ids bound to Python, and batches of samples by length.

#include <nanobind/stl/pair.h>

#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "python/module.h"
#include "tokens/buckets.h"
#include "tokens/fill.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using OwnedInt64s = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

template <typename Owned, typename T>
Owned owned(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept,
                          [](void* raw) noexcept { delete static_cast<std::vector<T>*>(raw); });
  return Owned(kept->data(), {kept->size()}, owner);
}

template <typename T>
using Optional = std::optional<Array<T, 1>>;

/// ValueError for the first slot that ends before it begins, or outside `size`.
void expect_slots(const Int64s& slots, std::size_t count, std::size_t size) {
  expect_length("slots", slots.size(), count + 1);
  std::int64_t before = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    const std::int64_t slot = slots.data()[i];
    if (slot < before || static_cast<std::uint64_t>(slot) > size) {
      throw nb::value_error(("slot " + std::to_string(i) + " is at " + std::to_string(slot) +
                             ", expected " + std::to_string(before) + " to " + std::to_string(size))
                                .c_str());
    }
    before = slot;
  }
}

template <typename T>
T* data_of(const char* name, const Optional<T>& array, std::size_t size) {
  if (!array) return nullptr;
  if (array->size() < size) {
    throw nb::value_error((std::string(name) + " has " + std::to_string(array->size()) +
                           " entries, expected " + std::to_string(size) + " as ids has")
                              .c_str());
  }
  return array->data();
}

PyJob fill_tokens(const Spans& spans, const Int64s& slots, const Array<std::int64_t, 1>& ids,
                  const StatusArray& status, const PoolHandle& pool, bool verify,
                  const Optional<std::uint8_t>& mask, const Optional<std::int64_t>& positions,
                  std::size_t item_bytes, std::int64_t pad_id, std::uint64_t vocabulary,
                  bool at_end) {
  auto given = resolve(spans);
  const std::size_t count = spans.size();
  if (!is_id_size(item_bytes)) throw nb::value_error("item_bytes is none of 1, 2, 4, 8");
  expect_slots(slots, count, ids.size());
  expect_length("status", status.size(), count);
  const Checksums checksums = spans.checksums(verify);
  const TokenSlots to{slots.data(),
                      ids.data(),
                      data_of("mask", mask, ids.size()),
                      data_of("positions", positions, ids.size()),
                      nullptr,
                      nullptr,
                      nullptr,
                      checked(checksums, count),
                      status.data(),
                      item_bytes,
                      pad_id,
                      vocabulary,
                      at_end};
  const std::size_t bytes = count > 0 ? 8 * ids.size() / count : 0;
  return begin(fill_tokens_task(std::move(given), to), {count, grain_for(bytes)}, pool,
               keep(spans.buffers, checksums, slots, ids, status, mask, positions));
}

/// Appends the ids of an encoding, its list `ids`, each as an Id; how many. ValueError for one that
/// does not fit, TypeError for none.
template <typename Id>
std::int64_t append_ids(nb::handle encoding, std::vector<std::uint8_t>& out) {
  const nb::object ids = encoding.attr("ids");
  if (!nb::isinstance<nb::list>(ids)) throw nb::type_error("ids is not a list");
  const auto count = static_cast<std::size_t>(PyList_Size(ids.ptr()));
  const std::size_t before = out.size();
  out.resize(before + count * sizeof(Id));
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* number = PyList_GetItem(ids.ptr(), static_cast<Py_ssize_t>(i));
    const unsigned long id = PyLong_AsUnsignedLong(number);
    if (id == static_cast<unsigned long>(-1) && PyErr_Occurred() != nullptr)
      throw nb::python_error();
    if (id > std::numeric_limits<Id>::max()) {
      throw nb::value_error(("id " + std::to_string(id) + " does not fit into " +
                             std::to_string(sizeof(Id)) + " bytes")
                                .c_str());
    }
    const auto narrow = static_cast<Id>(id);
    std::memcpy(out.data() + before + i * sizeof(Id), &narrow, sizeof(Id));
  }
  return static_cast<std::int64_t>(count);
}

using OwnedBytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

std::pair<OwnedBytes, OwnedInt64s> encoded_ids(const nb::list& encodings, std::size_t item_bytes) {
  if (item_bytes != 2 && item_bytes != 4) throw nb::value_error("item_bytes is neither 2 nor 4");
  std::vector<std::uint8_t> ids;
  std::vector<std::int64_t> lengths;
  lengths.reserve(encodings.size());
  for (nb::handle encoding : encodings) {
    lengths.push_back(item_bytes == 2 ? append_ids<std::uint16_t>(encoding, ids)
                                      : append_ids<std::uint32_t>(encoding, ids));
  }
  return {owned<OwnedBytes>(std::move(ids)), owned<OwnedInt64s>(std::move(lengths))};
}

}  // namespace

void bind_tokens(nb::module_& m) {
  m.def("encoded_ids", &encoded_ids, "encodings"_a, "item_bytes"_a,
        nb::sig("def encoded_ids(encodings: list[Any], item_bytes: int) -> "
                "tuple[NDArray[np.uint8], NDArray[np.int64]]"),
        "The ids (each a list of int, as tokenizers keeps them) of encodings one after the other,\n"
        "as unsigned integers of 2 or 4 bytes, and how many each has. No list outlives its turn.");
  m.def("fill_tokens", &fill_tokens, "spans"_a, "slots"_a.noconvert(), "ids"_a.noconvert(),
        "status"_a.noconvert(), "pool"_a = nb::none(), nb::kw_only(), "verify"_a = true,
        "mask"_a.noconvert().none() = nb::none(), "positions"_a.noconvert().none() = nb::none(),
        "item_bytes"_a, "pad_id"_a = 0, "vocabulary"_a = 0, "at_end"_a = false,
        nb::sig("def fill_tokens(spans: Spans, slots: NDArray[np.int64], "
                "ids: NDArray[np.int64], status: NDArray[np.int32], "
                "pool: ThreadPool | None = None, *, verify: bool = True, "
                "mask: NDArray[np.uint8] | None = None, "
                "positions: NDArray[np.int64] | None = None, item_bytes: int, pad_id: int = 0, "
                "vocabulary: int = 0, at_end: bool = False) -> Job"),
        "Widen each span of ids (1, 2, 4 or 8 bytes each) into ``ids[slots[i]:slots[i + 1]]``,\n"
        "the rest of the slot ``pad_id``; ``mask`` is 1 for tokens, ``positions`` counts them.\n"
        "``at_end`` pads before the tokens. ``slots`` has one entry more than there are spans and\n"
        "must stay as it is until the job is done. A span longer than its slot is BAD_SHAPE, an\n"
        "id from ``vocabulary`` on CORRUPT (0: none is); such a slot is padding alone.");
}

// Plans of batches bound to Python: samples by length into steps, or packed into bins.

namespace {

/// ValueError for the first length that cannot be.
void expect_lengths(const Int32s& lengths, std::size_t most) {
  if (lengths.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw nb::value_error("more than 2**32 - 1 lengths");
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int32_t length = lengths.data()[i];
    if (length < 0 || static_cast<std::size_t>(length) > most) {
      throw nb::value_error(("length " + std::to_string(i) + " is " + std::to_string(length) +
                             ", expected 0 to " + std::to_string(most))
                                .c_str());
    }
  }
}

void expect_positive(const char* name, std::size_t number) {
  if (number == 0) throw nb::value_error((std::string(name) + " is 0, expected 1 or more").c_str());
}

using Order = Array<std::int64_t, 1>;

using Chosen = std::optional<Int64s>;

/// ValueError where `order` is not as long as there are samples, or one of them has no length.
void expect_samples(const Int32s& lengths, const Chosen& chosen, const Order& order) {
  expect_length("order", order.size(), chosen ? chosen->size() : lengths.size());
  if (!chosen) return;
  for (std::size_t i = 0; i < chosen->size(); ++i) {
    const std::int64_t sample = chosen->data()[i];
    if (sample < 0 || static_cast<std::size_t>(sample) >= lengths.size()) {
      throw nb::value_error(("sample " + std::to_string(i) + " is " + std::to_string(sample) +
                             ", expected less than " + std::to_string(lengths.size()))
                                .c_str());
    }
  }
}

/// The samples in the order of the epoch, in the memory of `order`; without `epoch` in the order
/// given.
std::span<std::uint64_t> ordered(const Int32s& lengths, const Chosen& chosen, const Order& order,
                                 std::uint64_t seed, std::optional<std::uint32_t> epoch) {
  const std::span<std::uint64_t> samples{reinterpret_cast<std::uint64_t*>(order.data()),
                                         order.size()};
  const Samples from{{lengths.data(), lengths.size()}, chosen ? chosen->data() : nullptr};
  if (epoch) {
    in_random_order(from, {seed, *epoch}, samples);
  } else {
    in_order(from, samples);
  }
  return samples;
}

OwnedInt64s bucket_steps(const Int32s& lengths, const Order& order, const Chosen& samples,
                         std::size_t window, std::size_t batch_size, std::size_t max_tokens,
                         std::size_t multiple, std::size_t world_size, std::uint64_t seed,
                         std::optional<std::uint32_t> epoch) {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  expect_positive("window", window);
  expect_positive("multiple", multiple);
  expect_positive("world_size", world_size);
  const StepRule rule{std::min(window, lengths.size() + 1), batch_size, max_tokens, multiple,
                      world_size};
  std::vector<std::int64_t> cuts;
  {
    const WithoutGil released;
    expect_lengths(lengths, most);
    expect_samples(lengths, samples, order);
    cuts = fastio::bucket_steps(ordered(lengths, samples, order, seed, epoch), rule);
  }
  return owned<OwnedInt64s>(std::move(cuts));
}

void expect_capacity(const char* name, std::size_t capacity) {
  if (capacity >= std::numeric_limits<std::int32_t>::max()) {
    throw nb::value_error((std::string(name) + " is 2**31 - 1 or more").c_str());
  }
}

OwnedInt64s best_fit_bins(const Int32s& lengths, const Order& order, const Chosen& samples,
                          std::size_t window, std::size_t capacity, std::size_t world_size,
                          bool is_mixed, std::uint64_t seed, std::optional<std::uint32_t> epoch) {
  expect_positive("window", window);
  expect_positive("world_size", world_size);
  expect_capacity("capacity", capacity);
  std::vector<std::int64_t> cuts;
  {
    const WithoutGil released;
    expect_lengths(lengths, capacity);
    expect_samples(lengths, samples, order);
    const BinRule rule{std::min(window, lengths.size() + 1), capacity, world_size, is_mixed};
    cuts = fastio::best_fit_bins(ordered(lengths, samples, order, seed, epoch), rule);
  }
  return owned<OwnedInt64s>(std::move(cuts));
}

OwnedInt64s pair_bins(const Int32s& lengths, const Int32s& patches, const Order& order,
                      std::size_t window, std::size_t capacity, std::size_t most_patches,
                      std::size_t world_size, std::uint64_t seed,
                      std::optional<std::uint32_t> epoch) {
  expect_positive("window", window);
  expect_positive("world_size", world_size);
  expect_capacity("capacity", capacity);
  expect_capacity("most_patches", most_patches);
  expect_length("patches", patches.size(), lengths.size());
  std::vector<std::int64_t> cuts;
  {
    const WithoutGil released;
    expect_lengths(lengths, capacity);
    expect_lengths(patches, most_patches);
    expect_samples(lengths, std::nullopt, order);
    const PairRule rule{std::min(window, lengths.size() + 1),
                        capacity,
                        {patches.data(), patches.size()},
                        most_patches,
                        world_size};
    cuts = fastio::pair_bins(ordered(lengths, std::nullopt, order, seed, epoch), rule);
  }
  return owned<OwnedInt64s>(std::move(cuts));
}

void permute_steps(const Order& order, std::size_t size, const Int64s& steps) {
  bool is_done = false;
  {
    const WithoutGil released;
    is_done =
        fastio::permute_steps({order.data(), order.size()}, size, {steps.data(), steps.size()});
  }
  if (!is_done) throw nb::value_error("steps do not name each step of order once");
}

std::size_t deal_steps(const Int64s& order, const Int64s& cuts, const Int64s& steps,
                       std::size_t rank, std::size_t world_size,
                       const Array<std::int64_t, 1>& out) {
  expect_positive("world_size", world_size);
  const WithoutGil released;
  return fastio::deal_steps({order.data(), order.size()}, {cuts.data(), cuts.size()},
                            {steps.data(), steps.size()}, rank, world_size,
                            {out.data(), out.size()});
}

std::size_t left_over(const Order& order, const Int64s& cuts, const Int64s& steps,
                      std::size_t count) {
  const WithoutGil released;
  return fastio::left_over({order.data(), order.size()}, {cuts.data(), cuts.size()},
                           {steps.data(), steps.size()}, count);
}

void shuffle_runs(const Order& values, const Int64s& cuts, std::uint64_t seed,
                  std::uint64_t stream) {
  bool is_done = false;
  {
    const WithoutGil released;
    is_done = fastio::shuffle_runs({values.data(), values.size()}, {cuts.data(), cuts.size()}, seed,
                                   stream);
  }
  if (!is_done) throw nb::value_error("cuts do not ascend from 0 to the number of values");
}

void interleave_lanes(const Order& out, std::size_t lanes, std::uint64_t seed,
                      std::uint64_t stream) {
  expect_positive("lanes", lanes);
  const WithoutGil released;
  std::vector<std::int64_t> order(std::min(lanes, std::max<std::size_t>(out.size(), 1)));
  fastio::interleave_lanes({out.data(), out.size()}, order, seed, stream);
}

void write_runs(const Int64s& starts, const Int64s& stops, const Order& out) {
  bool is_done = false;
  {
    const WithoutGil released;
    is_done = fastio::write_runs({starts.data(), starts.size()}, {stops.data(), stops.size()},
                                 {out.data(), out.size()});
  }
  if (!is_done) throw nb::value_error("runs do not ascend, or do not fill out");
}

void deal_lanes(const Int64s& places, const Array<std::int64_t, 2>& out, std::size_t lanes,
                std::size_t start, std::size_t steps, std::size_t world_size,
                std::size_t batch_size, std::size_t first_rank) {
  expect_positive("lanes", lanes);
  expect_positive("world_size", world_size);
  expect_positive("batch_size", batch_size);
  bool is_done = false;
  {
    const WithoutGil released;
    is_done = fastio::deal_lanes({places.data(), places.size()},
                                 {lanes, start, steps, world_size, batch_size}, first_rank,
                                 out.shape(0), {out.data(), out.size()});
  }
  if (!is_done) throw nb::value_error("places, ranks or steps lie outside of the order");
}

}  // namespace

void bind_batch_plans(nb::module_& m) {
  m.def("bucket_steps", &bucket_steps, "lengths"_a.noconvert(), "order"_a.noconvert(),
        nb::kw_only(), "samples"_a.noconvert().none(), "window"_a, "batch_size"_a, "max_tokens"_a,
        "multiple"_a, "world_size"_a, "seed"_a, "epoch"_a.none(),
        nb::sig("def bucket_steps(lengths: NDArray[np.int32], order: NDArray[np.int64], *, "
                "samples: NDArray[np.int64] | None, window: int, batch_size: int, "
                "max_tokens: int, multiple: int, world_size: int, "
                "seed: int, epoch: int | None) -> NDArray[np.int64]"),
        "Write the indices ``samples`` (None: all) to ``order``, windows sorted by length,\n"
        "longest first; step k is\n"
        "``order[cuts[k]:cuts[k + 1]]`` of the cuts returned: ``batch_size`` samples a rank, or,\n"
        "where that is 0, as many as ``max_tokens`` allows when padded. Windows are of samples\n"
        "in random order, or, with ``epoch=None``, in the order given.");
  m.def("best_fit_bins", &best_fit_bins, "lengths"_a.noconvert(), "order"_a.noconvert(),
        nb::kw_only(), "samples"_a.noconvert().none(), "window"_a, "capacity"_a, "world_size"_a,
        "mixed"_a, "seed"_a, "epoch"_a.none(),
        nb::sig("def best_fit_bins(lengths: NDArray[np.int32], order: NDArray[np.int64], *, "
                "samples: NDArray[np.int64] | None, window: int, capacity: int, "
                "world_size: int, mixed: bool, seed: int, epoch: int | None) -> NDArray[np.int64]"),
        "Write the indices ``samples`` (None: all) to ``order``, each window packed best fit\n"
        "decreasing, or ``mixed``, into bins of ``capacity`` tokens; bin k is "
        "``order[cuts[k]:cuts[k + 1]]`` of "
        "the cuts returned.");
  m.def("pair_bins", &pair_bins, "lengths"_a.noconvert(), "patches"_a.noconvert(),
        "order"_a.noconvert(), nb::kw_only(), "window"_a, "capacity"_a, "most_patches"_a,
        "world_size"_a, "seed"_a, "epoch"_a.none(),
        nb::sig("def pair_bins(lengths: NDArray[np.int32], patches: NDArray[np.int32], "
                "order: NDArray[np.int64], *, window: int, capacity: int, most_patches: int, "
                "world_size: int, seed: int, "
                "epoch: int | None) -> NDArray[np.int64]"),
        "As ``best_fit_bins``, mixed and of all samples, into bins of ``capacity`` tokens and "
        "``most_patches``\n"
        "patches: sample i has ``lengths[i]`` and ``patches[i]`` of them.");
  m.def("permute_steps", &permute_steps, "order"_a.noconvert(), "size"_a, "steps"_a.noconvert(),
        nb::sig("def permute_steps(order: NDArray[np.int64], size: int, "
                "steps: NDArray[np.int64]) -> None"),
        "Let the k-th ``size`` places of ``order`` hold what those of step ``steps[k]`` held.");
  m.def("deal_steps", &deal_steps, "order"_a.noconvert(), "cuts"_a.noconvert(),
        "steps"_a.noconvert(), "rank"_a, "world_size"_a, "out"_a.noconvert(),
        nb::sig("def deal_steps(order: NDArray[np.int64], cuts: NDArray[np.int64], "
                "steps: NDArray[np.int64], rank: int, world_size: int, "
                "out: NDArray[np.int64]) -> int"),
        "Copy samples rank, rank + world_size, ... of these steps to ``out``; how many.");
  m.def("left_over", &left_over, "order"_a.noconvert(), "cuts"_a.noconvert(), "steps"_a.noconvert(),
        "count"_a,
        nb::sig("def left_over(order: NDArray[np.int64], cuts: NDArray[np.int64], "
                "steps: NDArray[np.int64], count: int) -> int"),
        "Write the samples of ``order``, numbers below ``count``, that are in none of these steps\n"
        "to its beginning, ascending; how many.");
  m.def("shuffle_runs", &shuffle_runs, "values"_a.noconvert(), "cuts"_a.noconvert(), "seed"_a,
        "stream"_a,
        nb::sig("def shuffle_runs(values: NDArray[np.int64], cuts: NDArray[np.int64], seed: int, "
                "stream: int) -> None"),
        "Shuffle each ``values[cuts[k]:cuts[k + 1]]`` in place, as ``shuffle`` with stream + k.");
  m.def("interleave_lanes", &interleave_lanes, "out"_a.noconvert(), "lanes"_a, "seed"_a, "stream"_a,
        nb::sig("def interleave_lanes(out: NDArray[np.int64], lanes: int, seed: int, "
                "stream: int) -> None"),
        "Write the places of ``out`` round by round: one place of each lane, lanes in random\n"
        "order. Lane l holds the places from ``l * len(out) // lanes`` on; no lane is empty.");
  m.def("write_runs", &write_runs, "starts"_a.noconvert(), "stops"_a.noconvert(),
        "out"_a.noconvert(),
        nb::sig("def write_runs(starts: NDArray[np.int64], stops: NDArray[np.int64], "
                "out: NDArray[np.int64]) -> None"),
        "Write the numbers from each start up to its stop to ``out``, which they fill.");
  m.def(
      "deal_lanes", &deal_lanes, "places"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(),
      "lanes"_a, "start"_a, "steps"_a, "world_size"_a, "batch_size"_a, "first_rank"_a,
      nb::sig("def deal_lanes(places: NDArray[np.int64], out: NDArray[np.int64], *, lanes: int, "
              "start: int, steps: int, world_size: int, batch_size: int, first_rank: int) -> "
              "None"),
      "Begin row i with the positions (in ``places``) of the samples that rank ``first_rank + i``\n"
      "gets of the full steps from ``start`` on: a step's samples are sorted by lane and cut into\n"
      "equal parts, one a rank; a rank's positions ascend within a step.");
}

}  // namespace fastio::python
