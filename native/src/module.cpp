// The Python face of fastio_core: with module_*, the only files that know Python.
//
// Every batch function checks shapes and spans, builds a task and begins it.
#include <libdeflate.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

#include "fastio/buffer_ring.h"
#include "fastio/bytes.h"
#include "fastio/crc32.h"
#include "fastio/decode.h"
#include "fastio/gather.h"
#include "fastio/jpeg.h"
#include "fastio/philox.h"
#include "fastio/probe.h"
#include "fastio/read_files.h"
#include "fastio/readahead.h"
#include "fastio/simd.h"
#include "module_batch.h"

using fastio::Bytes;
using namespace fastio::python;
using namespace nb::literals;

namespace {

ReadOnlyByteArray view(nb::handle_t<Buffers> self, std::int64_t shard, std::int64_t start,
                       std::int64_t size) {
  const Bytes bytes = nb::cast<const Buffers&>(self).at("", shard, start, size);
  return ReadOnlyByteArray(bytes.data(), {bytes.size()}, self);
}

// ----------------------------------------------------------------- batch functions

PyJob checksum(BuffersHandle buffers, const Int32s& shard, const Int64s& starts,
               const Int64s& sizes, const Array<std::uint32_t, 1>& out, const PoolHandle& pool) {
  auto spans = resolve(buffers, shard, starts, sizes);
  expect_length("out", out.size(), starts.size());
  return begin(fastio::checksum_task(std::move(spans), out.data()), {starts.size(), 16}, pool,
               keep(nb::borrow(buffers), out));
}

PyJob probe_images(
    BuffersHandle buffers, const Int32s& shard, const Int64s& starts, const Int64s& sizes,
    const nb::ndarray<std::int32_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>& out,
    const PoolHandle& pool) {
  auto spans = resolve(buffers, shard, starts, sizes);
  expect_length("out", out.shape(0), starts.size());
  return begin(fastio::probe_task(std::move(spans), out.data()), {starts.size(), 16}, pool,
               keep(nb::borrow(buffers), out));
}

PyJob decode_images(BuffersHandle buffers, const Int32s& shard, const Int64s& starts,
                    const Int64s& sizes, const Checksums& checksums,
                    const Array<std::uint8_t, 4>& out, const StatusArray& status,
                    const PoolHandle& pool) {
  auto spans = resolve(buffers, shard, starts, sizes);
  const std::size_t count = starts.size();
  expect_length("out", out.shape(0), count);
  expect_length("status", status.size(), count);
  const std::size_t channels = out.shape(3);
  if (channels != 1 && channels != 3 && channels != 4) {
    throw nb::value_error(("out has " + std::to_string(channels) +
                           " channels, expected 1 (grey), 3 (RGB) or 4 (RGBA)")
                              .c_str());
  }
  const fastio::Picture first{out.data(), out.shape(1), out.shape(2), static_cast<int>(channels)};
  const fastio::Pictures pictures{first, checked(checksums, count), status.data()};
  // Decoding is some ten times the work of copying.
  const std::size_t grain = grain_for(8 * first.height * first.row_bytes());
  return begin(fastio::decode_task(std::move(spans), pictures), {count, grain}, pool,
               keep(nb::borrow(buffers), checksums, out, status));
}

PyJob gather(BuffersHandle buffers, const Int32s& shard, const Int64s& starts, const Int64s& sizes,
             const Checksums& checksums, const Array<std::uint8_t, 2>& out,
             const StatusArray& status, const PoolHandle& pool) {
  auto spans = resolve(buffers, shard, starts, sizes);
  const std::size_t count = starts.size();
  expect_length("out", out.shape(0), count);
  expect_length("status", status.size(), count);
  const fastio::Rows rows{out.data(), out.shape(1), checked(checksums, count), status.data()};
  return begin(fastio::gather_task(std::move(spans), rows), {count, grain_for(rows.row_bytes)},
               pool, keep(nb::borrow(buffers), checksums, out, status));
}

PyJob will_need(BuffersHandle buffers, const Int32s& shard, const Int64s& starts,
                const Int64s& sizes, const PoolHandle& pool) {
  auto spans = resolve(buffers, shard, starts, sizes);
  return begin(fastio::will_need_task(std::move(spans), starts.size()),
               {std::size_t{starts.size() > 0}, 1}, pool, keep(nb::borrow(buffers)));
}

PyJob read_files(const nb::sequence& paths, const Int64s& sizes, const Array<std::uint8_t, 1>& out,
                 const Int64s& starts, const StatusArray& status, const StatusArray& error,
                 const PoolHandle& pool) {
  const std::size_t count = starts.size();
  nb::object kept_paths = nb::steal(PySequence_Tuple(paths.ptr()));
  if (!kept_paths.is_valid()) throw nb::python_error();
  expect_length("paths", nb::len(kept_paths), count);
  expect_length("sizes", sizes.size(), count);
  expect_length("status", status.size(), count);
  expect_length("errno", error.size(), count);
  auto names = std::make_unique<const char*[]>(count);
  for (std::size_t i = 0; i < count; ++i) {
    char* name = nullptr;  // PyBytes_AsStringAndSize refuses what is not bytes or holds a NUL
    PyObject* path = PyTuple_GET_ITEM(kept_paths.ptr(), static_cast<Py_ssize_t>(i));
    if (PyBytes_AsStringAndSize(path, &name, nullptr) != 0) throw nb::python_error();
    names[i] = name;
    if (!fastio::fits(starts.data()[i], sizes.data()[i], out.size())) {
      throw nb::index_error(("file " + std::to_string(i) + ": " + std::to_string(sizes.data()[i]) +
                             " bytes from " + std::to_string(starts.data()[i]) + " leave out of " +
                             std::to_string(out.size()) + " bytes")
                                .c_str());
    }
  }
  fastio::FileReads reads{std::move(names), sizes.data(),  starts.data(),
                          out.data(),       status.data(), error.data()};
  return begin(fastio::read_files_task(std::move(reads)), {count, 16}, pool,
               keep(std::move(kept_paths), sizes, out, starts, status, error));
}

// -------------------------------------------------------------- what is no batch

ByteArray acquire(fastio::BufferRing& ring, std::size_t nbytes) {
  auto lease = ring.acquire(nbytes);
  if (!lease) throw std::bad_alloc();
  std::uint8_t* data = lease->data();
  const nb::capsule owner(lease.release(), [](void* raw) noexcept {
    delete static_cast<fastio::BufferRing::Lease*>(raw);
  });
  return ByteArray(data, {nbytes}, owner);
}

std::uint32_t crc32(const nb::object& data, std::uint32_t value) {
  constexpr Py_ssize_t worth_releasing = 64 * 1024;
  Py_buffer buffer;
  if (PyObject_GetBuffer(data.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const Bytes bytes(static_cast<const std::uint8_t*>(buffer.buf),
                    static_cast<std::size_t>(buffer.len));
  if (buffer.len >= worth_releasing) {
    const nb::gil_scoped_release released;
    value = fastio::crc32(bytes, value);
  } else {
    value = fastio::crc32(bytes, value);
  }
  PyBuffer_Release(&buffer);
  return value;
}

void shuffle(const Array<std::int64_t, 1>& values, std::uint64_t seed, std::uint64_t stream) {
  const nb::gil_scoped_release released;
  fastio::shuffle({values.data(), values.size()}, seed, stream);
}

nb::dict build_info() {
  constexpr int jpeg = LIBJPEG_TURBO_VERSION_NUMBER;
  nb::dict info;
  info["libjpeg-turbo"] = std::to_string(jpeg / 1000000) + "." +
                          std::to_string(jpeg / 1000 % 1000) + "." + std::to_string(jpeg % 1000);
  info["libdeflate"] = LIBDEFLATE_VERSION_STRING;
  info["simd"] = fastio::simd_name(fastio::simd_level());
  info["entropy"] =
      fastio::entropy_in_use() == fastio::Entropy::fastio ? "fastio" : "libjpeg-turbo";
  info["compiler"] = __VERSION__;
  return info;
}

// ----------------------------------------------------------------------- binding

void bind_status(nb::module_& m) {
  const std::pair<const char*, fastio::Status> names[] = {
      {"OK", fastio::Status::ok},
      {"BAD_CHECKSUM", fastio::Status::bad_checksum},
      {"TRUNCATED", fastio::Status::truncated},
      {"CORRUPT", fastio::Status::corrupt},
      {"UNSUPPORTED", fastio::Status::unsupported},
      {"BAD_SHAPE", fastio::Status::bad_shape},
      {"NOT_IMAGE", fastio::Status::not_image},
      {"IO_ERROR", fastio::Status::io_error},
      {"CHANGED", fastio::Status::changed},
  };
  for (const auto& [name, status] : names) m.attr(name) = static_cast<int>(status);
}

void bind_classes(nb::module_& m) {
  nb::class_<Buffers>(m, "Buffers",
                      "Read-only byte buffers that spans point into; keeps them alive.")
      .def(nb::init<nb::sequence>(), "buffers"_a,
           nb::sig("def __init__(self, buffers: Sequence[NDArray[np.uint8]]) -> None"))
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
      .def("close", &PyPool::close, "Finish the jobs under way, join; twice does no harm.");

  nb::class_<PyJob>(m, "Job",
                    "One batch under way. Keeps its inputs and outputs alive until it is done.")
      .def("wait", &PyJob::wait, "timeout_s"_a = -1.0,
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

#define SPANS                                                               \
  "buffers: Buffers, shard: NDArray[np.int32], starts: NDArray[np.int64], " \
  "sizes: NDArray[np.int64], "
#define POOL_TO_JOB "pool: ThreadPool | None = None) -> Job"

void bind_batches(nb::module_& m) {
  m.def("checksum", &checksum, "buffers"_a, "shard"_a.noconvert(), "starts"_a.noconvert(),
        "sizes"_a.noconvert(), "out"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def checksum(" SPANS "out: NDArray[np.uint32], " POOL_TO_JOB),
        "Write each span's CRC-32 to ``out[i]``.");
  m.def("probe_images", &probe_images, "buffers"_a, "shard"_a.noconvert(), "starts"_a.noconvert(),
        "sizes"_a.noconvert(), "out"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def probe_images(" SPANS "out: NDArray[np.int32], " POOL_TO_JOB),
        "Read headers only. ``out`` is (n, 5): status, height, width, channels as stored, kind\n"
        "(0 unknown, 1 JPEG, 2 PNG, 3 GIF, 4 BMP, 5 WebP, 6 TIFF, 7 PNM).");
  m.def("decode_images", &decode_images, "buffers"_a, "shard"_a.noconvert(), "starts"_a.noconvert(),
        "sizes"_a.noconvert(), "checksums"_a.noconvert().none(), "out"_a.noconvert(),
        "status"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def decode_images(" SPANS "checksums: NDArray[np.uint32] | None, "
                "out: NDArray[np.uint8], status: NDArray[np.int32], " POOL_TO_JOB),
        "Decode each span into ``out[i]``; ``out`` is (n, H, W, C), C 1 (as Pillow's \"L\"),\n"
        "3 (\"RGB\") or 4 (\"RGBA\"). ``status`` is (n,). Rows whose status is not OK are\n"
        "unspecified. Without a pool the calling thread decodes, and the job is done.");
  m.def("gather", &gather, "buffers"_a, "shard"_a.noconvert(), "starts"_a.noconvert(),
        "sizes"_a.noconvert(), "checksums"_a.noconvert().none(), "out"_a.noconvert(),
        "status"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def gather(" SPANS "checksums: NDArray[np.uint32] | None, "
                "out: NDArray[np.uint8], status: NDArray[np.int32], " POOL_TO_JOB),
        "Copy each span into its row of ``out``, (n, row_bytes); another size is BAD_SHAPE.");
  m.def("will_need", &will_need, "buffers"_a, "shard"_a.noconvert(), "starts"_a.noconvert(),
        "sizes"_a.noconvert(), "pool"_a = nb::none(), nb::sig("def will_need(" SPANS POOL_TO_JOB),
        "Ask the kernel to read these spans ahead, neighbours merged.");
  m.def("read_files", &read_files, "paths"_a, "sizes"_a.noconvert(), "out"_a.noconvert(),
        "starts"_a.noconvert(), "status"_a.noconvert(), "errno"_a.noconvert(),
        "pool"_a = nb::none(),
        nb::sig("def read_files(paths: Sequence[bytes], sizes: NDArray[np.int64], "
                "out: NDArray[np.uint8], starts: NDArray[np.int64], status: NDArray[np.int32], "
                "errno: NDArray[np.int32], " POOL_TO_JOB),
        "Read whole files to ``out[starts[i]:starts[i] + sizes[i]]``; ``errno`` is 0 where there\n"
        "was none. Regular files only (through links too); a FIFO never blocks.");
}

void bind_functions(nb::module_& m) {
  m.def("crc32", &crc32, "data"_a, "value"_a = 0,
        nb::sig("def crc32(data: Any, value: int = 0) -> int"),
        "CRC-32 of a contiguous buffer, as zlib.crc32; large ones without the GIL.");
  m.def("shuffle", &shuffle, "values"_a.noconvert(), "seed"_a, "stream"_a,
        nb::sig("def shuffle(values: NDArray[np.int64], seed: int, stream: int) -> None"),
        "Fisher-Yates in place by Philox4x32-10; seed and stream are 0..2**64-1. The same on\n"
        "every machine and in every version.");
  m.def("build_info", &build_info, nb::sig("def build_info() -> dict[str, str]"),
        "Versions of the codecs, the SIMD level in use, the compiler.");
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The native core: batches of encoded samples to arrays, on threads, without the GIL.";
  (void)fastio::entropy_in_use();  // tests itself now, while no thread can fork under it
  bind_status(m);
  bind_classes(m);
  bind_batches(m);
  bind_transforms(m);
  bind_functions(m);
}
