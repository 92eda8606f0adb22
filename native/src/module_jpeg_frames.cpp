// What the frame headers of JPEGs say, counted for Python.
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "fastio/probe.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

std::tuple<std::size_t, std::size_t, std::size_t> count_jpegs(const Spans& spans) {
  const auto files = resolve(spans);
  const WithoutGil released;
  std::size_t jpegs = 0;
  std::size_t progressive = 0;
  std::size_t inks = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    JpegFrame frame{};
    if (!read_jpeg_frame(files[i], frame)) continue;
    ++jpegs;
    if (frame.is_progressive) ++progressive;
    if (frame.components == 4) ++inks;
  }
  return {jpegs, progressive, inks};
}

}  // namespace

void bind_jpeg_frames(nb::module_& m) {
  m.def("count_jpegs", &count_jpegs, "spans"_a,
        nb::sig("def count_jpegs(spans: Spans) -> tuple[int, int, int]"),
        "How many spans are JPEGs; of these, how many are progressive, and how many have four\n"
        "components (CMYK, YCCK). Headers alone are read.");
}

}  // namespace fastio::python
