// The log of what pools work on, for Python.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fastio/range_log.h"
#include "module.h"

namespace fastio::python {

using namespace nb::literals;

RangeLog& range_log() {
  static auto* log = new RangeLog;  // pools of daemon threads may outlive everything else
  return *log;
}

namespace {

using Said = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::string, std::size_t>;

void record_ranges(std::size_t most) {
  if (!range_log().start(most)) throw std::bad_alloc();
}

std::pair<std::vector<Said>, std::size_t> recorded_ranges() {
  std::size_t dropped = 0;
  std::vector<Said> said;
  for (const Range& range : range_log().stop(dropped)) {
    said.emplace_back(range.thread, range.start_ns, range.stop_ns, range.what, range.samples);
  }
  return {std::move(said), dropped};
}

}  // namespace

void bind_range_log(nb::module_& m) {
  m.def("record_ranges", &record_ranges, "most"_a, nb::sig("def record_ranges(most: int) -> None"),
        "Note from now on what the threads of all pools work on, ``most`` ranges at most.");
  m.def("recorded_ranges", &recorded_ranges,
        nb::sig("def recorded_ranges() -> tuple[list[tuple[int, int, int, str, int]], int]"),
        "End noting. The ranges in the order in which they ended: thread id, start and stop in ns\n"
        "of time.time_ns(), what, samples; and how many were dropped because there were too many.");
}

}  // namespace fastio::python
