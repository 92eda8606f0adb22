// Plans of reads bound to Python: what the kernel is asked for, and what a cache would hold.
#include <span>
#include <vector>

#include "fastio/readahead.h"
#include "fastio/recently_used.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

/// ValueError unless the cuts ascend from 0 to `size`.
void expect_cuts(const Int64s& cuts, std::size_t size) {
  const std::span<const std::int64_t> all(cuts.data(), cuts.size());
  if (all.empty() || all.front() != 0 || !std::ranges::is_sorted(all) ||
      all.back() != static_cast<std::int64_t>(size)) {
    throw nb::value_error("cuts do not ascend from 0 to the number of values");
  }
}

void count_stretches(const Spans& spans, const Int64s& cuts, const Array<std::int64_t, 1>& reads,
                     const Array<std::int64_t, 1>& nbytes) {
  expect_cuts(cuts, spans.size());
  expect_length("reads", reads.size(), cuts.size() - 1);
  expect_length("nbytes", nbytes.size(), cuts.size() - 1);
  expect_inside(spans);
  const WithoutGil released;
  std::vector<std::pair<std::int32_t, Stretch>> group;
  std::vector<Stretch> of_file;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    group.clear();
    for (auto i = static_cast<std::size_t>(cuts.data()[k]);
         i < static_cast<std::size_t>(cuts.data()[k + 1]); ++i) {
      const auto start = static_cast<std::uint64_t>(spans.starts.data()[i]);
      const auto size = static_cast<std::uint64_t>(spans.sizes.data()[i]);
      group.push_back({spans.shard.data()[i], {start, start + size}});
    }
    std::ranges::stable_sort(group, {}, [](const auto& span) { return span.first; });
    std::int64_t count = 0;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < group.size();) {
      of_file.clear();
      const std::int32_t shard = group[i].first;
      for (; i < group.size() && group[i].first == shard; ++i) of_file.push_back(group[i].second);
      for (const Stretch stretch : stretches(of_file)) {
        ++count;
        total += stretch.last - stretch.first;
      }
    }
    reads.data()[k] = count;
    nbytes.data()[k] = static_cast<std::int64_t>(total);
  }
}

/// A cache that works without the GIL, for one thread at a time.
struct PyRecentlyUsed : RecentlyUsed {
  using RecentlyUsed::RecentlyUsed;

  std::atomic<bool> used{false};
};

void init(PyRecentlyUsed* self, const Int64s& sizes, std::uint64_t capacity) {
  constexpr std::size_t most = (1UL << 32) - 2;
  const std::span<const std::int64_t> all(sizes.data(), sizes.size());
  if (all.size() > most || std::ranges::any_of(all, [](std::int64_t size) { return size < 0; })) {
    throw nb::value_error("sizes: expected fewer than 2**32 - 1, none negative");
  }
  new (self) PyRecentlyUsed({all.begin(), all.end()}, capacity);
}

void use(PyRecentlyUsed& self, const Int64s& samples, const Int64s& cuts,
         const Array<std::int64_t, 1>& missed) {
  const SoleUse sole(self.used, "this cache");
  expect_cuts(cuts, samples.size());
  expect_length("missed", missed.size(), cuts.size() - 1);
  const std::span<const std::int64_t> all(samples.data(), samples.size());
  const auto count = static_cast<std::int64_t>(self.count());
  const WithoutGil released;
  if (std::ranges::any_of(all, [=](std::int64_t k) { return k < 0 || k >= count; })) {
    const nb::gil_scoped_acquire acquired;
    throw nb::index_error("samples: one is not among those of the cache");
  }
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    const auto first = static_cast<std::size_t>(cuts.data()[k]);
    const auto stop = static_cast<std::size_t>(cuts.data()[k + 1]);
    missed.data()[k] = static_cast<std::int64_t>(self.use(all.subspan(first, stop - first)));
  }
}

}  // namespace

void bind_read_plans(nb::module_& m) {
  m.def("count_stretches", &count_stretches, "spans"_a, "cuts"_a.noconvert(), "reads"_a.noconvert(),
        "nbytes"_a.noconvert(),
        nb::sig("def count_stretches(spans: fastio.types.spans.Spans, cuts: NDArray[np.int64], "
                "reads: NDArray[np.int64], nbytes: NDArray[np.int64]) -> None"),
        "Write how many stretches are read for the spans from ``cuts[k]`` up to ``cuts[k + 1]``,\n"
        "and their bytes, for every k. Nothing is read.");
  nb::class_<PyRecentlyUsed>(m, "RecentlyUsed",
                             "What a cache of ``capacity`` bytes holds of samples of these sizes: "
                             "those used most recently.")
      .def("__init__", &init, "sizes"_a.noconvert(), "capacity"_a,
           nb::sig("def __init__(self, sizes: NDArray[np.int64], capacity: int) -> None"))
      .def("use", &use, "samples"_a.noconvert(), "cuts"_a.noconvert(), "missed"_a.noconvert(),
           nb::sig("def use(self, samples: NDArray[np.int64], cuts: NDArray[np.int64], missed: "
                   "NDArray[np.int64]) -> None"),
           "Use the samples in turn; write the bytes of those that it did not hold among\n"
           "``samples[cuts[k]:cuts[k + 1]]``, for every k.");
}

}  // namespace fastio::python
