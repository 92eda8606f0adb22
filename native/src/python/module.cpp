// The module: its classes, and the functions that are no batches.

#include "python/module.h"

#include <libdeflate.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

#include "core/checksum.h"
#include "core/random.h"
#include "core/receipt.h"
#include "core/simd.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "jpeg/jpeg.h"
#include "pictures/kinds.h"
#include "pictures/probe.h"

namespace fastio::python {

using namespace nb::literals;

ByteArray acquire(fastio::BufferRing& ring, std::size_t nbytes) {
  auto lease = ring.acquire(nbytes);
  if (!lease) throw std::bad_alloc();
  std::uint8_t* data = lease->data();
  const nb::capsule owner(lease.release(), [](void* raw) noexcept {
    delete static_cast<fastio::BufferRing::Lease*>(raw);
  });
  return ByteArray(data, {nbytes}, owner);
}

namespace {

ReadOnlyByteArray view(nb::handle_t<Buffers> self, std::int64_t shard, std::int64_t start,
                       std::int64_t size) {
  const Bytes bytes = nb::cast<const Buffers&>(self).at("", shard, start, size);
  return ReadOnlyByteArray(bytes.data(), {bytes.size()}, self);
}

std::uint32_t crc32(const nb::object& data, std::uint32_t value) {
  constexpr Py_ssize_t worth_releasing = 64 * 1024;
  Py_buffer buffer;
  if (PyObject_GetBuffer(data.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const Bytes bytes(static_cast<const std::uint8_t*>(buffer.buf),
                    static_cast<std::size_t>(buffer.len));
  if (buffer.len >= worth_releasing) {
    const WithoutGil released;
    value = fastio::crc32(bytes, value);
  } else {
    value = fastio::crc32(bytes, value);
  }
  PyBuffer_Release(&buffer);
  return value;
}

void shuffle(const Array<std::int64_t, 1>& values, std::uint64_t seed, std::uint64_t stream) {
  const WithoutGil released;
  fastio::shuffle({values.data(), values.size()}, seed, stream);
}

void permute(const Array<std::int64_t, 1>& places, std::int64_t count, std::uint64_t seed,
             std::uint64_t stream) {
  const std::span<std::int64_t> all(places.data(), places.size());
  const WithoutGil released;
  for (const std::int64_t place : all) {
    if (place < 0 || place >= count) throw nb::index_error("a place outside 0..count-1");
  }
  if (!all.empty()) {
    fastio::Permutation(static_cast<std::uint64_t>(count), seed, stream).apply(all);
  }
}

std::uint64_t receipt_sum(const Array<const std::int64_t, 1>& indices,
                          const std::optional<Array<const std::uint32_t, 1>>& checksums,
                          std::uint64_t key) {
  constexpr std::size_t worth_releasing = 64 * 1024;
  const std::span<const std::int64_t> numbers(indices.data(), indices.size());
  std::span<const std::uint32_t> sums;
  if (checksums) sums = {checksums->data(), checksums->size()};
  if (checksums && sums.size() != numbers.size()) {
    throw nb::value_error("checksums: expected as many as indices");
  }
  if (numbers.size() < worth_releasing) return fastio::receipt_sum(numbers, sums, key);
  const WithoutGil released;
  return fastio::receipt_sum(numbers, sums, key);
}

nb::dict build_info() {
  constexpr int jpeg = LIBJPEG_TURBO_VERSION_NUMBER;
  nb::dict info;
  info["libjpeg-turbo"] = std::to_string(jpeg / 1000000) + "." +
                          std::to_string(jpeg / 1000 % 1000) + "." + std::to_string(jpeg % 1000);
  info["libdeflate"] = LIBDEFLATE_VERSION_STRING;
  const char* webp = fastio::webp_version();
  info["libwebp"] = webp != nullptr ? webp : "none: Pillow decodes WebP";
  info["simd"] = fastio::simd_name(fastio::simd_level());
  info["entropy"] =
      fastio::entropy_in_use() == fastio::Entropy::fastio ? "fastio" : "libjpeg-turbo";
  info["compiler"] = __VERSION__;
  return info;
}

void bind_status(nb::module_& m) {
  const std::pair<const char*, fastio::Status> names[] = {
      {"OK", fastio::Status::ok},
      {"BAD_CHECKSUM", fastio::Status::bad_checksum},
      {"TRUNCATED", fastio::Status::truncated},
      {"CORRUPT", fastio::Status::corrupt},
      {"UNSUPPORTED", fastio::Status::unsupported},
      {"NO_MEMORY", fastio::Status::no_memory},
      {"BAD_SHAPE", fastio::Status::bad_shape},
      {"NOT_IMAGE", fastio::Status::not_image},
      {"IO_ERROR", fastio::Status::io_error},
      {"CHANGED", fastio::Status::changed},
      {"FAILED", fastio::Status::failed},
      {"TOO_LARGE", fastio::Status::too_large},
  };
  for (const auto& [name, status] : names) m.attr(name) = static_cast<int>(status);
}

void bind_image_kinds(nb::module_& m) {
  nb::enum_<fastio::ImageKind> kinds(m, "ImageKind", nb::is_arithmetic(),
                                     "Kinds of pictures, as ``probe_images`` numbers them.");
  kinds.value("UNKNOWN", fastio::ImageKind::unknown);
  const auto rows = fastio::native_kinds();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string name = rows[i]->name;
    for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
    kinds.value(name.c_str(), fastio::ImageKind{static_cast<std::int32_t>(i) + 1});
  }
  m.def(
      "picture_kinds",
      [] {
        nb::list named;
        for (const fastio::PictureKind* row : fastio::native_kinds()) {
          const bool is_member = row == &fastio::jpeg_kind || row == &fastio::png_kind;
          const bool is_decoded = is_member || row->make_decoder != nullptr;
          named.append(nb::make_tuple(row->name, row->extensions, is_decoded));
        }
        return named;
      },
      nb::sig("def picture_kinds() -> list[tuple[str, str, bool]]"),
      "The native kinds, from number 1 on: name, extensions of files (\"tif tiff\"), and whether\n"
      "they are decoded here rather than by Pillow.");
  m.def(
      "add_picture_kind",
      [](const std::vector<std::pair<std::size_t, nb::bytes>>& signatures) {
        std::vector<fastio::Signature> rows(signatures.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const auto& [place, bytes] = signatures[i];
          if (bytes.size() == 0 || bytes.size() > fastio::Signature::most_bytes) {
            throw nb::value_error("a signature has 1 to 16 bytes");
          }
          rows[i].place = place;
          rows[i].size = bytes.size();
          std::memcpy(rows[i].bytes, bytes.data(), bytes.size());
        }
        const fastio::ImageKind kind = fastio::add_kind(rows);
        if (kind == fastio::ImageKind::unknown) throw nb::value_error("too many kinds of pictures");
        return static_cast<int>(kind);
      },
      "signatures"_a,
      nb::sig("def add_picture_kind(signatures: Sequence[tuple[int, bytes]]) -> int"),
      "Recognise files that have one of these bytes at its place as a further kind, which Pillow\n"
      "decodes; returns its number. It stays until the process ends.");
  m.def(
      "image_kind",
      [](const Array<const std::uint8_t, 1>& file) {
        return static_cast<int>(fastio::image_kind({file.data(), file.size()}));
      },
      "file"_a.noconvert(), nb::sig("def image_kind(file: NDArray[np.uint8]) -> int"),
      "The kind of a picture by its first bytes, as ``ImageKind`` numbers it; 0 for none that is\n"
      "known.");
}

void bind_classes(nb::module_& m) {
  nb::class_<Buffers>(m, "Buffers",
                      "Read-only byte buffers that spans point into; keeps them alive.\n\n"
                      "A number stands for the size of a file that is not in memory: its spans are "
                      "checked, and\nlooking at them is a ValueError.")
      .def(nb::init<nb::sequence>(), "buffers"_a,
           nb::sig("def __init__(self, buffers: Sequence[NDArray[np.uint8] | int]) -> None"))
      .def("__len__", &Buffers::size)
      .def("view", &view, "shard"_a, "start"_a, "size"_a,
           nb::sig("def view(self, shard: int, start: int, size: int) -> NDArray[np.uint8]"),
           "The bytes of one span, without a copy; IndexError when they leave their buffer.");

  nb::class_<PyPool>(
      m, "ThreadPool",
      "Native threads that work on jobs in the order of submission, without the GIL.\n\n"
      "They start with the first job. In the child after a fork the pool starts anew.")
      .def(nb::init<std::size_t>(), "threads"_a)
      .def_prop_ro("threads", &PyPool::threads, "How many threads there are.")
      .def_prop_ro("used", &PyPool::used, "How many of them begin jobs: all, unless told by use().")
      .def("use", &PyPool::use, "threads"_a,
           "Let only so many begin jobs, 1 to ``threads``; the others finish theirs and sleep.")
      .def_prop_ro("cpu_seconds", &PyPool::cpu_seconds,
                   "CPU time of the threads so far; 0 before the first job and after close().")
      .def("close", &PyPool::close, "Finish the jobs under way, join; twice does no harm.");

  nb::class_<PyJob>(m, "Job",
                    "One batch under way. Keeps its inputs and outputs alive until it is done.")
      .def("wait", &PyJob::wait, "timeout_s"_a = -1.0, nb::lock_self(),
           "Wait without the GIL; False when not done in time. RuntimeError in a forked child.")
      .def("cancel", &PyJob::cancel,
           "Skip the samples not yet begun; wait() then returns as usual.")
      .def_prop_ro("done", &PyJob::done, "Whether nothing is left to do.");

  nb::class_<fastio::BufferRing>(
      m, "BufferRing",
      "Recycled batch buffers, 64-byte aligned; at most ``keep`` free ones are held.")
      .def(nb::init<std::size_t>(), "keep"_a)
      .def("acquire", &acquire, "nbytes"_a,
           nb::sig("def acquire(self, nbytes: int) -> NDArray[np.uint8]"),
           "An uninitialised array; its memory comes back when the last array or tensor over it "
           "dies.")
      .def_prop_ro("allocated_bytes", &fastio::BufferRing::allocated_bytes,
                   "Bytes handed out and bytes free.");
}

void bind_functions(nb::module_& m) {
  m.def("crc32", &crc32, "data"_a, "value"_a = 0,
        nb::sig("def crc32(data: Any, value: int = 0) -> int"),
        "CRC-32 of a contiguous buffer, as zlib.crc32; large ones without the GIL.");
  m.def("shuffle", &shuffle, "values"_a.noconvert(), "seed"_a, "stream"_a,
        nb::sig("def shuffle(values: NDArray[np.int64], seed: int, stream: int) -> None"),
        "Fisher-Yates in place by Philox4x32-10; seed and stream are 0..2**64-1. The same on\n"
        "every machine and in every version.");
  m.def("permute", &permute, "places"_a.noconvert(), "count"_a, "seed"_a, "stream"_a,
        nb::sig("def permute(places: NDArray[np.int64], count: int, seed: int, stream: int) -> "
                "None"),
        "Replace places in a permutation of 0..count-1 by the numbers there, in place: no\n"
        "permutation is kept, each number is computed alone by a Feistel network. Seed and stream\n"
        "are 0..2**64-1. The same on every machine and in every version. Raises IndexError.");
  m.def("receipt_sum", &receipt_sum, "indices"_a.noconvert(), "checksums"_a.noconvert().none(),
        "key"_a,
        nb::sig("def receipt_sum(indices: NDArray[np.int64], checksums: NDArray[np.uint32] | None, "
                "key: int) -> int"),
        "A number for samples and their checksums, whatever order they come in: the sum modulo\n"
        "2**64 of a strong mix of index, checksum (None: 0) and key. Sums of parts add up to that\n"
        "of the whole. The same on every machine and in every version.");
  m.def("build_info", &build_info, nb::sig("def build_info() -> dict[str, str]"),
        "Versions of the codecs, the SIMD level in use, the compiler.");
}

}  // namespace
}  // namespace fastio::python

NB_MODULE(_native, m) {
  // At interpreter exit live objects are usual (a dataset in a global, a spawned worker that just
  // ends): nobody wants a report about them on stderr.
  nanobind::set_leak_warnings(false);
  m.doc() = "The native core: batches of encoded samples to arrays, on threads, without the GIL.";
  (void)fastio::entropy_in_use();  // tests itself now, while no thread can fork under it
  fastio::python::bind_status(m);
  fastio::python::bind_image_kinds(m);
  fastio::python::bind_classes(m);
  fastio::python::bind_spans();
  fastio::python::bind_batch_loop(m);
  fastio::python::bind_tensors(m);
  fastio::python::bind_batch_plans(m);
  fastio::python::bind_read_plans(m);
  fastio::python::bind_batches(m);
  fastio::python::bind_transcode(m);
  fastio::python::bind_tokens(m);
  fastio::python::bind_row_batches(m);
  fastio::python::bind_token_batches(m);
  fastio::python::bind_transforms(m);
  fastio::python::bind_masks(m);
  fastio::python::bind_note_points(m);
  fastio::python::bind_files(m);
  fastio::python::bind_index(m);
  fastio::python::bind_jpeg_frames(m);
  fastio::python::bind_key_set(m);
  fastio::python::bind_lmdb_pages(m);
  fastio::python::bind_look_up(m);
  fastio::python::bind_records(m);
  fastio::python::bind_tar_members(m);
  fastio::python::bind_range_log(m);
  fastio::python::bind_functions(m);
}

// The log of what pools work on, for Python.

namespace fastio::python {

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

// A fastio.types.spans.Spans on its way into the native core.

#if !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED)
#define FASTIO_READS_SLOTS
// Needs Python.h before it.
#include <structmember.h>
#endif

namespace fastio::python {
namespace {

enum Name { buffers_, shard_, starts_, sizes_, checksums_, intervals_, name_count };

/// Reads the attributes of a class with __slots__ from where they lie in its objects. Looking each
/// up by name takes 0.1 to 0.2 us a call more, which Python code that passes them one by one does
/// not spend either. The stable ABI does not tell where slots lie, and without the GIL another
/// thread may replace what lies there between the look and the reference: names are looked up then.
class Slots {
 public:
  Slots() {
    constexpr const char* names[] = {"buffers", "shard",     "starts",
                                     "sizes",   "checksums", "intervals"};
    for (std::size_t i = 0; i < name_count; ++i) names_[i] = PyUnicode_InternFromString(names[i]);
  }

  /// The object's attribute, or null, without an exception, where it has none of this name.
  nb::object get(nb::handle object, Name name) {
#ifdef FASTIO_READS_SLOTS
    if (Py_TYPE(object.ptr()) == type_ || learn(Py_TYPE(object.ptr()))) {
      const char* slot = reinterpret_cast<const char*>(object.ptr()) + offsets_[name];
      return nb::borrow(*reinterpret_cast<PyObject* const*>(slot));  // null where it was deleted
    }
#endif
    PyObject* value = PyObject_GetAttr(object.ptr(), names_[name]);
    if (value == nullptr) PyErr_Clear();
    return nb::steal(value);
  }

 private:
#ifdef FASTIO_READS_SLOTS
  /// Takes the class for the one whose objects come from now on; false where it has other
  /// attributes, or none.
  bool learn(PyTypeObject* type) {
    std::array<Py_ssize_t, name_count> offsets;
    for (std::size_t i = 0; i < name_count; ++i) {
      const nb::object member =
          nb::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names_[i]));
      if (!member.is_valid()) PyErr_Clear();
      if (!member.is_valid() || !Py_IS_TYPE(member.ptr(), &PyMemberDescr_Type)) return false;
      const auto* slot = reinterpret_cast<PyMemberDescrObject*>(member.ptr());
      if (slot->d_common.d_type != type || slot->d_member->type != T_OBJECT_EX) return false;
      offsets[i] = slot->d_member->offset;
    }
    Py_INCREF(type);  // so that no other class gets its address
    Py_XDECREF(type_);
    type_ = type;
    offsets_ = offsets;
    return true;
  }

  PyTypeObject* type_ = nullptr;
  std::array<Py_ssize_t, name_count> offsets_{};
#endif
  std::array<PyObject*, name_count> names_;
};

/// The one of the process; first asked for by `bind_spans`. (A thread that waits for another to
/// make a static would not let Python stop all threads, and making this one may have to wait for
/// that.)
Slots& slots() {
  static Slots slots;
  return slots;
}

nb::object attribute(nb::handle object, Name name) noexcept {
  return slots().get(object, name);
}

/// Takes the attribute for an array, without converting it; false where it is none of this type.
template <typename T>
bool read_array(nb::handle object, Name name, T& out, nb::detail::cleanup_list* cleanup) noexcept {
  const nb::object array = attribute(object, name);
  nb::detail::make_caster<T> caster;
  if (!array.is_valid() || !caster.from_python(array, 0, cleanup)) return false;
  out = std::move(caster.value);
  return true;
}

}  // namespace

void bind_spans() {
  (void)slots();
}

bool Spans::read(nb::handle source, nb::detail::cleanup_list* cleanup) noexcept {
  buffers = attribute(source, buffers_);
  python_ = nb::borrow(source);
  return buffers.is_valid() && nb::isinstance<Buffers>(buffers) &&
         read_array(source, shard_, shard, cleanup) &&
         read_array(source, starts_, starts, cleanup) && read_array(source, sizes_, sizes, cleanup);
}

Checksums Spans::checksums(bool verify) const {
  if (!verify) return {};
  const nb::object array = attribute(python_, checksums_);
  Array<const std::uint32_t, 1> sums;
  if (!array.is_valid() || (!array.is_none() && !nb::try_cast(array, sums, false))) {
    throw nb::type_error("spans.checksums: expected a C-contiguous uint32 array or None");
  }
  return array.is_none() ? Checksums() : Checksums(std::move(sums));
}

std::optional<Spans> Spans::intervals() const {
  const nb::object object = attribute(python_, intervals_);
  if (object.is_none()) return {};
  Spans spans;
  if (!object.is_valid() || !nb::try_cast(object, spans, false)) {
    throw nb::type_error("spans.intervals: expected Spans or None");
  }
  expect_length("intervals", spans.size(), size());
  expect_length("shard of intervals", spans.shard.size(), size());
  expect_length("sizes of intervals", spans.sizes.size(), size());
  return spans;
}

}  // namespace fastio::python
