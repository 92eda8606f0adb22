// Token ids bound to Python: spans of ids into slots of a buffer.
#include "fastio/fill_tokens.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

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
  if (item_bytes != 2 && item_bytes != 4) throw nb::value_error("item_bytes is neither 2 nor 4");
  expect_slots(slots, count, ids.size());
  expect_length("status", status.size(), count);
  const Checksums checksums = spans.checksums(verify);
  const TokenSlots to{slots.data(),
                      ids.data(),
                      data_of("mask", mask, ids.size()),
                      data_of("positions", positions, ids.size()),
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

}  // namespace

void bind_tokens(nb::module_& m) {
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
        "Widen each span of ids (2 or 4 bytes each) into ``ids[slots[i]:slots[i + 1]]``, the rest\n"
        "of the slot ``pad_id``; ``mask`` is 1 where there are tokens, ``positions`` counts them.\n"
        "``at_end`` pads before the tokens. ``slots`` has one entry more than there are spans and\n"
        "must stay as it is until the job is done. A span longer than its slot is BAD_SHAPE, an\n"
        "id from ``vocabulary`` on CORRUPT (0: none is); such a slot is padding alone.");
}

}  // namespace fastio::python
