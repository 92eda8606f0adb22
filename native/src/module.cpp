// The module: its classes, and the functions that are no batches.
#include <libdeflate.h>
#include <nanobind/stl/string.h>

#include <cstdio>
#include <new>

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

#include "fastio/crc32.h"
#include "fastio/jpeg.h"
#include "fastio/philox.h"
#include "fastio/probe.h"
#include "fastio/receipt.h"
#include "fastio/simd.h"
#include "fastio/status.h"
#include "fastio/webp.h"
#include "module.h"

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
  nb::enum_<fastio::ImageKind>(m, "ImageKind", nb::is_arithmetic(),
                               "Kinds of pictures, as ``probe_images`` numbers them.")
      .value("UNKNOWN", fastio::ImageKind::unknown)
      .value("JPEG", fastio::ImageKind::jpeg)
      .value("PNG", fastio::ImageKind::png)
      .value("GIF", fastio::ImageKind::gif)
      .value("BMP", fastio::ImageKind::bmp)
      .value("WEBP", fastio::ImageKind::webp)
      .value("TIFF", fastio::ImageKind::tiff)
      .value("PNM", fastio::ImageKind::pnm);
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
  fastio::python::bind_jpeg_frames(m);
  fastio::python::bind_key_set(m);
  fastio::python::bind_lmdb_pages(m);
  fastio::python::bind_look_up(m);
  fastio::python::bind_tar_members(m);
  fastio::python::bind_range_log(m);
  fastio::python::bind_functions(m);
}
