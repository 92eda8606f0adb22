// KeySet bound to Python: names as bytes joined by NUL.
#include <nanobind/stl/optional.h>

#include "fastio/key_set.h"
#include "module.h"

namespace fastio::python {

using namespace nb::literals;

void bind_key_set(nb::module_& m) {
  nb::class_<KeySet>(
      m, "KeySet",
      "Finds names that come twice. Those that rise cost nothing, others 23 to 46 bytes each.")
      .def(nb::init<>())
      .def(
          "rise",
          [](KeySet& self, const nb::bytes& joined) {
            return self.rise({joined.c_str(), joined.size()});
          },
          "joined"_a, nb::lock_self(),
          "Whether names joined by NUL rise, each above all before, by bytes or with runs of\n"
          "digits as numbers; accepted all or none, and after a no none will ever.")
      .def(
          "insert",
          [](KeySet& self, const nb::bytes& joined) {
            return self.insert({joined.c_str(), joined.size()});
          },
          "joined"_a, nb::lock_self(),
          "Keep 128 bits of each name; the place of the first that was there, and then none is "
          "kept.");
}

}  // namespace fastio::python
