// LmdbPages as Python sees it: spans in, finished pages out.
#include "fastio/lmdb_pages.h"
#include "module.h"

namespace fastio::python {

using namespace nb::literals;

namespace {

using Int64Matrix = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<2>>;

std::vector<std::string> read_suffixes(const nb::sequence& suffixes) {
  std::vector<std::string> result;
  for (nb::handle each : suffixes) {
    const auto suffix = nb::cast<nb::bytes>(each);
    if (suffix.size() > LmdbPages::max_suffix_bytes) {
      throw nb::value_error("a suffix of a key is longer than the format allows");
    }
    result.emplace_back(suffix.c_str(), suffix.size());
  }
  return result;
}

/// A copy as an array of rows.
Int64Matrix rows(const std::int64_t* data, std::size_t count, std::size_t width) {
  auto copy = std::make_unique<std::int64_t[]>(count * width);
  std::copy_n(data, count * width, copy.get());
  std::int64_t* raw = copy.release();
  const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
  return Int64Matrix(raw, {count, width}, owner);
}

/// Values in the order of their keys: all of a sample's, then the next sample's.
std::vector<Bytes> read_fields(const nb::sequence& fields, std::size_t width,
                               std::vector<nb::object>& kept) {
  std::vector<Bytes> values;
  for (std::size_t field = 0; field < width; ++field) {
    const auto spans = nb::cast<Spans>(fields[field]);
    kept.push_back(spans.buffers);
    const auto bytes = resolve(spans);
    const std::size_t count = spans.size();
    if (field == 0) values.resize(count * width);
    expect_length("the first field", values.size() / width, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (bytes[i].size() > LmdbPages::max_value_bytes) {
        throw nb::value_error("a value is longer than the format allows");
      }
      values[i * width + field] = bytes[i];
    }
  }
  return values;
}

/// Pages of one file, and the buffers that they are written to.
class PyLmdbPages {
 public:
  explicit PyLmdbPages(const nb::sequence& suffixes) : pages_(read_suffixes(suffixes)) {}

  ByteArray append(const nb::sequence& fields) {
    const SoleUse use(used_, what);
    const std::size_t width = nb::len(fields);
    if (width != pages_.fields()) {
      throw nb::value_error(("expected spans of " + std::to_string(pages_.fields()) +
                             " fields, got " + std::to_string(width))
                                .c_str());
    }
    std::vector<nb::object> kept;  // what the spans point into, whatever happens to `fields`
    const std::vector<Bytes> values = read_fields(fields, width, kept);
    if (width > 0 && values.size() / width > pages_.samples_left()) {
      throw nb::value_error("there are more samples than a key has digits for");
    }
    ByteArray out = acquire(ring_, pages_.appended_bytes(values));
    const WithoutGil released;
    pages_.append(values, out.data());
    return out;
  }

  nb::tuple finish() {
    const SoleUse use(used_, what);
    ByteArray last = acquire(ring_, pages_.finished_bytes());
    pages_.finish(last.data());
    const auto& starts = pages_.starts();
    const auto& leaves = pages_.leaves();
    const std::size_t fields = pages_.fields();
    return nb::make_tuple(last,
                          rows(starts.data(), fields > 0 ? starts.size() / fields : 0, fields),
                          rows(leaves.empty() ? nullptr : leaves.data()->data(), leaves.size(), 2));
  }

  [[nodiscard]] std::uint64_t overflow_pages() {
    const SoleUse use(used_, what);
    return pages_.overflow_pages();
  }

 private:
  static constexpr const char* what = "these pages";

  LmdbPages pages_;
  std::atomic<bool> used_{false};
  BufferRing ring_{2};
};

}  // namespace

void bind_lmdb_pages(nb::module_& m) {
  nb::class_<PyLmdbPages>(
      m, "LmdbPages",
      "Turns samples, in order, into the leaf and overflow pages of an LMDB file, from page 2 "
      "on.\n\n"
      "A key is the sample's number in ten digits and the field's suffix; suffixes are sorted.")
      .def(nb::init<nb::sequence>(), "suffixes"_a,
           nb::sig("def __init__(self, suffixes: Sequence[bytes]) -> None"))
      .def(
          "append", &PyLmdbPages::append, "fields"_a,
          nb::sig("def append(self, fields: Sequence[Spans]) -> NDArray[np.uint8]"),
          "Add samples, given as the spans of each field, and return the pages that are finished.\n"
          "Works without the GIL. IndexError for a span that leaves its buffer.")
      .def("finish", &PyLmdbPages::finish,
           nb::sig("def finish(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], "
                   "NDArray[np.int64]]"),
           "The last page; where the values begin in the file, (samples, fields); first entry and\n"
           "page of every leaf, (n, 2), entries counted over samples and fields. It ends there.")
      .def_prop_ro("overflow_pages", &PyLmdbPages::overflow_pages, "Pages of long values so far.");
}

}  // namespace fastio::python
