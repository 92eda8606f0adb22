// Functions that look at many files of one folder, or read them.
#include <cstring>

#include "fastio/read_files.h"
#include "fastio/stat_files.h"
#include "module.h"

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
    const nb::ndarray<std::int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>& out) {
  static_assert(sizeof(FileStat) == 4 * sizeof(std::int64_t));
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

}  // namespace

void bind_files(nb::module_& m) {
  m.def("stat_files", &stat_files, "folder"_a, "names"_a, "out"_a.noconvert(),
        nb::sig("def stat_files(folder: int, names: Sequence[str | bytes], "
                "out: NDArray[np.int64]) -> None"),
        "Look at files of the folder open as ``folder``, links followed. ``out`` is (n, 4): errno\n"
        "(0 where there was none), mode, bytes, blocks of 512 bytes.");
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

}  // namespace fastio::python
