// Files bound to Python: many of a folder, plans of reads, members of tar, pages of LMDB, names.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <cstring>
#include <span>
#include <vector>

#include "files/key_set.h"
#include "files/lmdb_pages.h"
#include "files/read_files.h"
#include "files/readahead.h"
#include "files/tar_members.h"
#include "files/tf_records.h"
#include "python/module.h"

namespace fastio::python {

using namespace nb::literals;

namespace {

/// File names of a Python sequence of str or bytes, NUL-terminated; keeps what they point into.
class Names {
 public:
  explicit Names(const nb::sequence& names) : kept_{nb::steal(PySequence_Tuple(names.ptr()))} {
    if (!kept_.front().is_valid()) throw nb::python_error();
    const nb::handle tuple = kept_.front();
    const auto count = static_cast<std::size_t>(PyTuple_Size(tuple.ptr()));
    pointers_ = std::make_unique<const char*[]>(count);
    for (std::size_t i = 0; i < count; ++i) {
      pointers_[i] = read(PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i)));
    }
    size_ = count;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::unique_ptr<const char*[]> take_pointers() { return std::move(pointers_); }
  [[nodiscard]] std::vector<nb::object> take_objects() { return std::move(kept_); }

 private:
  const char* read(PyObject* name) {
    if (PyUnicode_Check(name)) {
      Py_ssize_t size = 0;
      const char* text = PyUnicode_AsUTF8AndSize(name, &size);
      if (text == nullptr) PyErr_Clear();  // a name of bytes that are not UTF-8
      if (text != nullptr && size == PyUnicode_GetLength(name)) {  // ASCII: the string's own bytes
        if (std::strlen(text) != static_cast<std::size_t>(size)) {
          throw nb::value_error("a file name holds a NUL");
        }
        return text;
      }
      name = PyUnicode_EncodeFSDefault(name);
      if (name == nullptr) throw nb::python_error();
      kept_.push_back(nb::steal(name));
    }
    char* text = nullptr;  // PyBytes_AsStringAndSize refuses what is not bytes or holds a NUL
    if (PyBytes_AsStringAndSize(name, &text, nullptr) != 0) throw nb::python_error();
    return text;
  }

  std::vector<nb::object> kept_;
  std::unique_ptr<const char*[]> pointers_;
  std::size_t size_ = 0;
};

void stat_files(
    int folder, const nb::sequence& names,
    const nb::ndarray<std::int64_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>& out) {
  static_assert(sizeof(FileStat) == 5 * sizeof(std::int64_t));
  Names found(names);
  if (out.shape(0) != found.size()) throw nb::value_error("out has another length than names");
  const auto pointers = found.take_pointers();
  const WithoutGil released;
  fastio::stat_files(folder, {pointers.get(), found.size()},
                     reinterpret_cast<FileStat*>(out.data()));
}

PyJob read_files(const nb::bytes& folder, const nb::sequence& names, const Int64s& sizes,
                 const Array<std::uint8_t, 1>& out, const Int64s& starts, const StatusArray& status,
                 const StatusArray& error, const PoolHandle& pool) {
  const std::size_t count = starts.size();
  Names found(names);
  expect_length("names", found.size(), count);
  expect_length("sizes", sizes.size(), count);
  expect_length("status", status.size(), count);
  expect_length("errno", error.size(), count);
  // Copied before they are checked: the caller may change its arrays while the job runs.
  auto places = std::make_unique<FilePlace[]>(count);
  for (std::size_t i = 0; i < count; ++i) {
    places[i] = {starts.data()[i], sizes.data()[i]};
    const auto [start, size] = places[i];
    if (!fits(start, size, out.size())) {
      throw nb::index_error(("file " + std::to_string(i) + ": " + std::to_string(size) +
                             " bytes from " + std::to_string(start) + " leave out of " +
                             std::to_string(out.size()) + " bytes")
                                .c_str());
    }
  }
  FileReads reads{found.take_pointers(), std::move(places), out.data(), status.data(),
                  error.data()};
  return begin(read_files_task(folder.c_str(), std::move(reads)), {count, 16}, pool,
               keep(found.take_objects(), out, status, error));
}

using FileParts = nb::ndarray<const std::int64_t, nb::shape<-1, 6>, nb::c_contig, nb::device::cpu>;
using Bytes1 = Array<const std::uint8_t, 1>;

/// Parts by rows of name, start, size, size of the file, mtime_ns and place, all checked.
std::vector<FilePart> file_parts(const Bytes1& names, const Bytes1& kept, const FileParts& rows,
                                 std::uint8_t* out, std::size_t out_size) {
  if (names.size() > 0 && names.data()[names.size() - 1] != 0) {
    throw nb::value_error("names do not end with a NUL");
  }
  std::vector<FilePart> parts(rows.shape(0));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t* row = rows.data() + 6 * i;
    FilePart& part = parts[i];
    part = {nullptr, nullptr, row[1], row[2], row[3], row[4], nullptr, nullptr, nullptr, nullptr};
    const bool is_kept = row[0] < 0;
    const std::size_t limit = is_kept ? kept.size() : static_cast<std::size_t>(row[3]);
    const bool is_named = is_kept || fits(row[0], 1, names.size());
    if (!is_named || row[3] < 0 || !fits(part.start, part.size, limit) ||
        (out != nullptr && !fits(row[5], part.size, out_size))) {
      throw nb::index_error(("part " + std::to_string(i) + ": " + std::to_string(part.size) +
                             " bytes from " + std::to_string(part.start) +
                             " leave their file or out")
                                .c_str());
    }
    if (is_kept) {
      part.from = kept.data() + part.start;
    } else {
      part.name = reinterpret_cast<const char*>(names.data() + row[0]);
    }
    if (out != nullptr) part.out = out + row[5];
  }
  return parts;
}

PyJob read_parts(const nb::bytes& folder, const Bytes1& names, const Bytes1& kept,
                 const FileParts& rows, const Array<std::uint8_t, 1>& out,
                 const StatusArray& status, const StatusArray& error,
                 const Array<std::int64_t, 1>& spent_ns, const PoolHandle& pool) {
  auto parts = file_parts(names, kept, rows, out.data(), out.size());
  expect_length("status", status.size(), parts.size());
  expect_length("errno", error.size(), parts.size());
  expect_length("spent_ns", spent_ns.size(), parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].status = status.data() + i;
    parts[i].error = error.data() + i;
    parts[i].spent_ns = spent_ns.data() + i;
  }
  const std::size_t count = parts.size();
  return begin(read_parts_task(folder.c_str(), std::move(parts)), {count, 4}, pool,
               keep(names, kept, out, status, error, spent_ns));
}

PyJob advise_parts(const nb::bytes& folder, const Bytes1& names, const Bytes1& kept,
                   const FileParts& rows, const PoolHandle& pool) {
  auto parts = file_parts(names, kept, rows, nullptr, 0);
  const std::size_t count = parts.size();
  return begin(advise_parts_task(folder.c_str(), std::move(parts)), {count, 16}, pool,
               keep(names, kept));
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("read_parts", &read_parts, "folder"_a, "names"_a.noconvert(), "kept"_a.noconvert(),
        "parts"_a.noconvert(), "out"_a.noconvert(), "status"_a.noconvert(), "errno"_a.noconvert(),
        "spent_ns"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def read_parts(folder: bytes, names: NDArray[np.uint8], kept: NDArray[np.uint8], "
                "parts: NDArray[np.int64], out: NDArray[np.uint8], status: NDArray[np.int32], "
                "errno: NDArray[np.int32], spent_ns: NDArray[np.int64], "
                "pool: ThreadPool | None = None) -> Job"),
        "Read parts of files, named from ``folder`` on. ``parts`` is (n, 6): where the name begins "
        "in\n"
        "``names``, of which each ends with a NUL; the first byte and how many; size and mtime in "
        "ns\n"
        "that the file must have; the place in ``out``. A name of -1 means bytes of ``kept``.\n"
        "``spent_ns`` is the time from opening to closing.\n"
        "IndexError, before anything is read, for a part that leaves its file or ``out``.");
  m.def("advise_parts", &advise_parts, "folder"_a, "names"_a.noconvert(), "kept"_a.noconvert(),
        "parts"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def advise_parts(folder: bytes, names: NDArray[np.uint8], "
                "kept: NDArray[np.uint8], parts: NDArray[np.int64], "
                "pool: ThreadPool | None = None) -> Job"),
        "Have the kernel begin to read these parts; see ``read_parts``.");
  m.def("stat_files", &stat_files, "folder"_a, "names"_a, "out"_a.noconvert(),
        nb::sig("def stat_files(folder: int, names: Sequence[str | bytes], "
                "out: NDArray[np.int64]) -> None"),
        "Look at files of the folder open as ``folder``, links followed. ``out`` is (n, 5): errno\n"
        "(0 where there was none), mode, bytes, blocks of 512 bytes, mtime in ns.");
  m.def(
      "read_files", &read_files, "folder"_a, "names"_a, "sizes"_a.noconvert(), "out"_a.noconvert(),
      "starts"_a.noconvert(), "status"_a.noconvert(), "errno"_a.noconvert(), "pool"_a = nb::none(),
      nb::sig("def read_files(folder: bytes, names: Sequence[str | bytes], "
              "sizes: NDArray[np.int64], out: NDArray[np.uint8], starts: NDArray[np.int64], "
              "status: NDArray[np.int32], errno: NDArray[np.int32], "
              "pool: ThreadPool | None = None) -> Job"),
      "Read whole files, named from ``folder`` on, to ``out[starts[i]:starts[i] + sizes[i]]``;\n"
      "``errno`` is 0 where there was none. Regular files only (through links too); a FIFO never\n"
      "blocks.");
}

// Plans of reads bound to Python: what the kernel is asked for, and what a cache would hold.

namespace {

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

}  // namespace

void bind_read_plans(nb::module_& m) {
  m.def("count_stretches", &count_stretches, "spans"_a, "cuts"_a.noconvert(), "reads"_a.noconvert(),
        "nbytes"_a.noconvert(),
        nb::sig("def count_stretches(spans: fastio.types.spans.Spans, cuts: NDArray[np.int64], "
                "reads: NDArray[np.int64], nbytes: NDArray[np.int64]) -> None"),
        "Write how many stretches are read for the spans from ``cuts[k]`` up to ``cuts[k + 1]``,\n"
        "and their bytes, for every k. Nothing is read.");
}

// Tar members as Python asks for them: names, places and spans in, a filled buffer out.

namespace {

/// One span for each sample; what they point into is kept.
std::unique_ptr<Bytes[]> read_spans(const Spans& spans, std::size_t count,
                                    std::vector<nb::object>& kept) {
  kept.push_back(spans.buffers);
  expect_length("starts", spans.size(), count);
  return resolve(spans);
}

std::vector<std::string_view> split_names(std::string_view joined, std::size_t count) {
  std::vector<std::string_view> names;
  names.reserve(count);
  for (bool is_more = count > 0; is_more;) {
    const std::size_t end = joined.find('\0');
    names.push_back(joined.substr(0, end));
    is_more = end != std::string_view::npos;
    if (is_more) joined.remove_prefix(end + 1);
  }
  expect_length("names", names.size(), count);
  return names;
}

void tar_members(const nb::bytes& names, const nb::sequence& contents, const Int64s& places,
                 const Array<std::uint8_t, 1>& out) {
  const std::size_t width = nb::len(contents);
  if (width == 0 || places.size() % width != 0) {
    throw nb::value_error("places has no whole number of samples");
  }
  const std::size_t count = places.size() / width;
  std::vector<nb::object> kept;  // what the spans point into, whatever happens to `contents`
  std::vector<TarMember> members(places.size());
  const auto split = split_names({names.c_str(), names.size()}, members.size());
  for (std::size_t column = 0; column < width; ++column) {
    const auto [first, second] = nb::cast<std::pair<Spans, Spans>>(contents[column]);
    const auto prefixes = read_spans(first, count, kept);
    const auto values = read_spans(second, count, kept);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = i * width + column;
      members[at] = {split[at], prefixes[i], values[i]};
    }
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::size_t bytes = members[i].prefix.size() + members[i].value.size();
    if (!fits_ustar(members[i]) ||
        !fits(places.data()[i], static_cast<std::int64_t>(tar_member_bytes(bytes)), out.size())) {
      throw nb::value_error(("member " + std::to_string(i) +
                             " fits no ustar header or leaves the "
                             "buffer")
                                .c_str());
    }
  }
  const WithoutGil released;
  for (std::size_t i = 0; i < members.size(); ++i) {
    write_tar_member(members[i], out.data() + places.data()[i]);
  }
}

}  // namespace

void bind_tar_members(nb::module_& m) {
  m.def("tar_members", &tar_members, "names"_a, "contents"_a, "places"_a.noconvert(),
        "out"_a.noconvert(),
        nb::sig("def tar_members(names: bytes, contents: Sequence[tuple[Spans, Spans]], "
                "places: NDArray[np.int64], out: NDArray[np.uint8]) -> None"),
        "Write ustar members, header and padding included, to their places in ``out``: of each\n"
        "sample one for each of ``contents``, the spans of what stands before the value and those\n"
        "of the value. ``names`` are joined by NUL. ValueError where one fits no ustar header.");
}

// LmdbPages as Python sees it: spans in, finished pages out.

namespace {

template <typename T>
using Matrix = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

/// A copy as an array of rows.
template <typename T>
Matrix<T> rows(const T* data, std::size_t count, std::size_t width) {
  auto copy = std::make_unique<T[]>(count * width);
  std::copy_n(data, count * width, copy.get());
  T* raw = copy.release();
  const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Matrix<T>(raw, {count, width}, owner);
}

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

  ByteArray finish() {
    const SoleUse use(used_, what);
    ByteArray last = acquire(ring_, pages_.finished_bytes());
    pages_.finish(last.data());
    return last;
  }

  nb::tuple take() {
    const SoleUse use(used_, what);
    const auto starts = pages_.take_starts();
    const auto leaves = pages_.take_leaves();
    const std::size_t fields = pages_.fields();
    return nb::make_tuple(rows(starts.data(), fields > 0 ? starts.size() / fields : 0, fields),
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
      .def("finish", &PyLmdbPages::finish, nb::sig("def finish(self) -> NDArray[np.uint8]"),
           "Return the last page. Nothing can be added afterwards.")
      .def(
          "take", &PyLmdbPages::take,
          nb::sig("def take(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]"),
          "Return what became known since the last call: where the values of samples begin in the\n"
          "file, (samples, fields), and first entry and page of leaves, (n, 2), entries counted\n"
          "over samples and fields. After ``finish``, all is known.")
      .def_prop_ro("overflow_pages", &PyLmdbPages::overflow_pages, "Pages of long values so far.");
}

// KeySet bound to Python: names as bytes joined by NUL.

namespace {

Matrix<std::uint64_t> hash_rows(const std::vector<NameHash>& hashes) {
  return rows(hashes.empty() ? nullptr : hashes.data()->data(), hashes.size(), 2);
}

}  // namespace

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
          "kept.")
      .def(
          "__len__", [](const KeySet& self) { return self.size(); }, nb::lock_self(),
          "How many names ``insert`` has kept.")
      .def(
          "take", [](KeySet& self) { return hash_rows(self.take()); }, nb::lock_self(),
          nb::sig("def take(self) -> NDArray[np.uint64]"),
          "Return the 128 bits of all names that ``insert`` has kept, (n, 2), sorted; it keeps "
          "none "
          "of\nthem.");
  m.def(
      "name_hashes",
      [](const nb::bytes& joined) {
        return hash_rows(name_hashes({joined.c_str(), joined.size()}));
      },
      "joined"_a, nb::sig("def name_hashes(joined: bytes) -> NDArray[np.uint64]"),
      "Return the 128 bits of each of the names joined by NUL, (n, 2), as a ``KeySet`` keeps "
      "them.");
}

// Records of TFRecord files and the features of their examples.

namespace {

Matrix<std::int64_t> record_places(const Bytes1& file) {
  std::vector<Run> found;
  {
    const WithoutGil released;
    found = fastio::record_places({file.data(), file.size()});
  }
  static_assert(sizeof(Run) == 2 * sizeof(std::int64_t));
  return rows(reinterpret_cast<const std::int64_t*>(found.data()), found.size(), 2);
}

nb::tuple parse_examples(const Spans& spans) {
  const auto examples = resolve(spans);
  ExampleParser parser;
  std::vector<std::int64_t> faults, features, parts;
  {
    const WithoutGil released;
    std::size_t known = 0, placed = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const ExampleFault fault = parser.add(examples[i]);
      faults.push_back(static_cast<std::int64_t>(fault));
      faults.push_back(fault == ExampleFault::type ? parser.bad_type() : 0);
      for (; known < parser.features().size(); ++known) {
        const auto& [name, kind, count] = parser.features()[known];
        features.insert(features.end(), {static_cast<std::int64_t>(i), name, kind, count});
      }
      for (; placed < parser.parts().size(); ++placed) {
        const auto& [start, size] = parser.parts()[placed];
        const std::int64_t first = spans.starts.data()[i] + start;
        parts.insert(parts.end(), {first, first + size});
      }
    }
  }
  nb::list names;
  for (const std::string_view name : parser.names()) {
    names.append(nb::bytes(name.data(), name.size()));
  }
  return nb::make_tuple(rows(faults.data(), faults.size() / 2, 2),
                        rows(features.data(), features.size() / 4, 4),
                        rows(parts.data(), parts.size() / 2, 2), names);
}

nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> read_varints(const Bytes1& bytes) {
  std::vector<std::int64_t> found;
  if (!fastio::read_varints({bytes.data(), bytes.size()}, found)) {
    throw nb::value_error("a varint without an end");
  }
  auto copy = std::make_unique<std::int64_t[]>(found.size());
  std::ranges::copy(found, copy.get());
  std::int64_t* raw = copy.release();
  const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
  return {raw, {found.size()}, owner};
}

}  // namespace

void bind_records(nb::module_& m) {
  nb::enum_<ExampleFault>(m, "ExampleFault", nb::is_arithmetic(),
                          "Why something is no tf.train.Example, as ``parse_examples`` says it.")
      .value("NONE", ExampleFault::none)
      .value("ENDLESS", ExampleFault::endless, "a number without an end")
      .value("OUTSIDE", ExampleFault::outside, "a field that leads out of its message")
      .value("TYPE", ExampleFault::type, "a field of an unknown type")
      .value("SEQUENCE", ExampleFault::sequence, "a SequenceExample");
  m.def("record_places", &record_places, "file"_a.noconvert(),
        nb::sig("def record_places(file: NDArray[np.uint8]) -> NDArray[np.int64]"),
        "Return start and size of the bytes of each whole record of a TFRecord file, (n, 2). No\n"
        "checksum is compared.");
  m.def(
      "parse_examples", &parse_examples, "spans"_a,
      nb::sig("def parse_examples(spans: Spans) -> tuple[NDArray[np.int64], "
              "NDArray[np.int64], NDArray[np.int64], list[bytes]]"),
      "Parse messages of tf.train.Example. Returns (n, 2), what is wrong with each, an\n"
      "ExampleFault, and the unknown type; the features, (m, 4): position of the example, of the\n"
      "name, kind (1 bytes, 2 floats, 3 integers) and how many parts; these parts, (p, 2), start\n"
      "and stop in the buffer of the span, each a value of bytes or a run of packed numbers; and\n"
      "the names. Features of a bad example are not all there.");
  m.def("read_varints", &read_varints, "data"_a.noconvert(),
        nb::sig("def read_varints(data: NDArray[np.uint8]) -> NDArray[np.int64]"),
        "Return the numbers of varints that lie one behind the other. ValueError if the last one\n"
        "has no end, or one has more than ten bytes.");
}

}  // namespace fastio::python
