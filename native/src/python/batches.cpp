// Batches: functions that check their arrays, build a task and begin it.
#include "core/checksum.h"
#include "files/readahead.h"
#include "pictures/decode.h"
#include "pictures/probe.h"
#include "pictures/worker.h"
#include "python/module.h"
#include "transform/rows.h"

namespace fastio::python {

using namespace nb::literals;

namespace {

/// The calling thread's decoders, for work without a pool.
fastio::Worker& own_worker() {
  thread_local fastio::Worker worker;
  return worker;
}

PyJob checksum(const Spans& spans, const Array<std::uint32_t, 1>& out, const PoolHandle& pool) {
  auto bytes = resolve(spans);
  expect_length("out", out.size(), spans.size());
  return begin(fastio::checksum_task(std::move(bytes), out.data()), {spans.size(), 16}, pool,
               keep(spans.buffers, out));
}

PyJob checksum_crc32c(const Spans& spans, const Array<std::uint32_t, 1>& out,
                      const PoolHandle& pool) {
  auto bytes = resolve(spans);
  expect_length("out", out.size(), spans.size());
  return begin(fastio::crc32c_task(std::move(bytes), out.data()), {spans.size(), 16}, pool,
               keep(spans.buffers, out));
}

PyJob probe_images(
    const Spans& spans,
    const nb::ndarray<std::int32_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>& out,
    const PoolHandle& pool, bool verify) {
  auto bytes = resolve(spans);
  expect_length("out", out.shape(0), spans.size());
  return begin(fastio::probe_task(std::move(bytes), verify, out.data()), {spans.size(), 16}, pool,
               keep(spans.buffers, out));
}

PyJob decode_images(const Spans& spans, const Array<std::uint8_t, 4>& out,
                    const StatusArray& status, const PoolHandle& pool, bool verify) {
  auto bytes = resolve(spans);
  const std::size_t count = spans.size();
  expect_length("out", out.shape(0), count);
  expect_length("status", status.size(), count);
  const std::size_t channels = out.shape(3);
  if (channels != 1 && channels != 3 && channels != 4) {
    throw nb::value_error(("out has " + std::to_string(channels) +
                           " channels, expected 1 (grey), 3 (RGB) or 4 (RGBA)")
                              .c_str());
  }
  const fastio::Picture first{out.data(), out.shape(1), out.shape(2), static_cast<int>(channels)};
  const Checksums checksums = spans.checksums(verify);
  const fastio::Pictures pictures{first, checked(checksums, count), status.data()};
  // Decoding is some ten times the work of copying.
  const std::size_t grain = grain_for(8 * first.height * first.row_bytes());
  const std::optional<Spans> known = spans.intervals();
  auto intervals = known ? resolve(*known) : nullptr;
  return begin(fastio::decode_task(std::move(bytes), std::move(intervals), pictures),
               {count, grain}, pool,
               keep(spans.buffers, known ? known->buffers : nb::none(), checksums, out, status));
}

PyJob gather(const Spans& spans, const Array<std::uint8_t, 2>& out, const StatusArray& status,
             const PoolHandle& pool, bool verify, std::size_t planes) {
  auto bytes = resolve(spans);
  const std::size_t count = spans.size();
  expect_length("out", out.shape(0), count);
  expect_length("status", status.size(), count);
  const Checksums checksums = spans.checksums(verify);
  const fastio::Rows rows{out.data(), out.shape(1), checked(checksums, count), status.data()};
  return begin(rows_task(std::move(bytes), rows, planes), {count, grain_for(rows.row_bytes)}, pool,
               keep(spans.buffers, checksums, out, status));
}

PyJob read_ahead(const Spans& spans, const PoolHandle& pool) {
  auto bytes = resolve(spans);
  return begin(fastio::read_ahead_task(std::move(bytes), spans.size()),
               {std::size_t{spans.size() > 0}, 1}, pool, keep(spans.buffers));
}

/// Bytes of each span's file, which need not be in memory; IndexError as of `resolve`.
std::vector<fastio::FileSpan> in_files(const Spans& spans, const Int32s& descriptors) {
  expect_inside(spans);
  if (descriptors.size() != nb::cast<const Buffers&>(spans.buffers).size()) {
    throw nb::value_error("a descriptor for each buffer expected");
  }
  std::vector<fastio::FileSpan> found;
  found.reserve(spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto first = static_cast<std::uint64_t>(spans.starts.data()[i]);
    found.push_back({descriptors.data()[spans.shard.data()[i]],
                     {first, first + static_cast<std::uint64_t>(spans.sizes.data()[i])}});
  }
  return found;
}

PyJob read_files_ahead(const Spans& spans, const Int32s& descriptors, nb::object files,
                       const PoolHandle& pool) {
  return begin(fastio::read_files_ahead_task(in_files(spans, descriptors)),
               {std::size_t{spans.size() > 0}, 1}, pool, keep(std::move(files)));
}

/// The descriptors are Python's: `files` keeps whatever closes them.
PyJob read_spans(const Spans& spans, const Int32s& descriptors, nb::object files,
                 const Array<std::uint8_t, 1>& out, const Array<std::int32_t, 1>& error,
                 const PoolHandle& pool) {
  const std::size_t count = spans.size();
  expect_length("error", error.size(), count);
  std::vector<fastio::SpanRead> reads;
  reads.reserve(count);
  std::size_t place = 0;
  for (const auto& [fd, bytes] : in_files(spans, descriptors)) {
    const std::size_t size = bytes.last - bytes.first;
    if (size > out.size() - place) {
      throw nb::value_error("out is shorter than all sizes together");
    }
    reads.push_back({fd, static_cast<std::int64_t>(bytes.first), size, out.data() + place,
                     error.data() + reads.size()});
    place += size;
  }
  return begin(fastio::read_spans_task(std::move(reads)),
               {count > 0 ? fastio::read_spans_steps : 0, 1}, pool,
               keep(std::move(files), out, error));
}

}  // namespace

std::unique_ptr<fastio::Task> rows_task(std::unique_ptr<Bytes[]> spans, const fastio::Rows& rows,
                                        std::size_t planes) {
  if (planes == 0) return fastio::gather_task(std::move(spans), rows);
  if ((planes != 1 && planes != 3 && planes != 4) || rows.row_bytes % planes != 0) {
    throw nb::value_error(("rows of " + std::to_string(rows.row_bytes) + " bytes, " +
                           std::to_string(planes) + " planes: expected 1, 3 or 4 of equal size")
                              .c_str());
  }
  return fastio::join_task(std::move(spans), rows, static_cast<int>(planes));
}

std::size_t grain_for(std::size_t bytes) {
  constexpr std::size_t grab_bytes = 64 * 1024;
  return std::clamp<std::size_t>(grab_bytes / std::max<std::size_t>(bytes, 1), 1, 64);
}

const std::uint32_t* checked(const Checksums& checksums, std::size_t count) {
  if (!checksums) return nullptr;
  expect_length("checksums", checksums->size(), count);
  return checksums->data();
}

void expect_length(const char* name, std::size_t found, std::size_t expected) {
  if (found == expected) return;
  throw nb::value_error((std::string(name) + " has " + std::to_string(found) +
                         " entries, expected " + std::to_string(expected) + " as starts has")
                            .c_str());
}

void expect_inside(const Spans& spans) {
  const auto& buffers = nb::cast<const Buffers&>(spans.buffers);
  const std::size_t count = spans.size();
  expect_length("shard", spans.shard.size(), count);
  expect_length("sizes", spans.sizes.size(), count);
  const std::size_t bad = fastio::first_outside({buffers.bytes(),
                                                 {spans.shard.data(), count},
                                                 {spans.starts.data(), count},
                                                 {spans.sizes.data(), count}});
  if (bad == count) return;
  const std::string where = "span " + std::to_string(bad) + ": ";
  (void)buffers.at(where, spans.shard.data()[bad], spans.starts.data()[bad],
                   spans.sizes.data()[bad]);
}

std::unique_ptr<Bytes[]> resolve(const Spans& spans) {
  expect_length("shard", spans.shard.size(), spans.size());
  expect_length("sizes", spans.sizes.size(), spans.size());
  return resolve(spans, 0, spans.size());
}

std::unique_ptr<Bytes[]> resolve(const Spans& spans, std::size_t first, std::size_t count) {
  const auto& buffers = nb::cast<const Buffers&>(spans.buffers);
  buffers.expect_memory();
  auto bytes = std::make_unique<Bytes[]>(count);
  const fastio::SpanTable table{buffers.bytes(),
                                {spans.shard.data() + first, count},
                                {spans.starts.data() + first, count},
                                {spans.sizes.data() + first, count}};
  const std::size_t bad = first + fastio::resolve(table, {bytes.get(), count});
  if (bad < first + count) {
    const std::string where = "span " + std::to_string(bad) + ": ";
    (void)buffers.at(where, spans.shard.data()[bad], spans.starts.data()[bad],
                     spans.sizes.data()[bad]);
  }
  return bytes;
}

bool wait_for(fastio::Job& job, double timeout_s) {
  constexpr double slice_s = 0.1;  // seconds until Ctrl-C is looked for
  while (!job.done()) {
    const double slice = timeout_s < 0 ? slice_s : std::min(timeout_s, slice_s);
    bool is_done = false;
    {
      const WithoutGil released;
      is_done = job.wait(slice);
    }
    if (is_done) break;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (timeout_s >= 0 && (timeout_s -= slice) <= 0) return false;
  }
  return true;
}

PyJob begin(std::unique_ptr<fastio::Task> task, Cut cut, const PoolHandle& handle, Kept kept) {
  return PyJob(submit(std::move(task), cut, handle), std::move(kept));
}

std::shared_ptr<fastio::Job> submit(std::unique_ptr<fastio::Task> task, Cut cut,
                                    const PoolHandle& handle) {
  auto* pool = handle ? nb::cast<PyPool*>(*handle) : nullptr;
  bool begun = true;
  std::shared_ptr<fastio::Job> job;
  {
    const WithoutGil released;
    if (pool != nullptr) {  // leave something to grab for every thread
      cut.grain = std::min(cut.grain, cut.count / (4 * pool->threads()) + 1);
    }
    job = std::make_shared<fastio::Job>(std::move(task), cut.count, cut.grain);
    if (pool != nullptr) {
      begun = pool->submit(job);
    } else {
      job->work(own_worker());
    }
  }
  if (!begun) throw std::runtime_error("the thread pool is closed or cannot start a thread");
  return job;
}

#define POOL_TO_JOB "pool: ThreadPool | None = None) -> Job"
#define POOL_VERIFY_TO_JOB "pool: ThreadPool | None = None, *, verify: bool = True) -> Job"

void bind_batches(nb::module_& m) {
  m.def("checksum", &checksum, "spans"_a, "out"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def checksum(spans: Spans, out: NDArray[np.uint32], " POOL_TO_JOB),
        "Write each span's CRC-32 to ``out[i]``.");
  m.def("checksum_crc32c", &checksum_crc32c, "spans"_a, "out"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def checksum_crc32c(spans: Spans, out: NDArray[np.uint32], " POOL_TO_JOB),
        "Write each span's CRC-32C, the checksum of TFRecord, to ``out[i]``.");
  m.def("probe_images", &probe_images, "spans"_a, "out"_a.noconvert(), "pool"_a = nb::none(),
        nb::kw_only(), "verify"_a = false,
        nb::sig("def probe_images(spans: Spans, out: NDArray[np.int32], "
                "pool: ThreadPool | None = None, *, verify: bool = False) -> Job"),
        "Read headers only. ``out`` is (n, 5): status, height, width, channels as stored, and\n"
        "``ImageKind``. ``verify`` also compares the CRC of every chunk of a PNG, BAD_CHECKSUM\n"
        "where one differs, and looks at the end of each file: TRUNCATED beside a height and a\n"
        "width where the file seems to break off, which decoding it must confirm.");
  m.def("decode_images", &decode_images, "spans"_a, "out"_a.noconvert(), "status"_a.noconvert(),
        "pool"_a = nb::none(), nb::kw_only(), "verify"_a = true,
        nb::sig("def decode_images(spans: Spans, out: NDArray[np.uint8], "
                "status: NDArray[np.int32], " POOL_VERIFY_TO_JOB),
        "Decode each span into ``out[i]``; ``out`` is (n, H, W, C), C 1 (as Pillow's \"L\"),\n"
        "3 (\"RGB\") or 4 (\"RGBA\"). ``status`` is (n,). Rows whose status is not OK are\n"
        "unspecified. ``verify`` compares the bytes with the checksums of the spans, where they\n"
        "have any. JPEGs with start points in ``spans.intervals`` take less time. Without a pool\n"
        "the calling thread decodes, and the job is done.");
  m.def("gather", &gather, "spans"_a, "out"_a.noconvert(), "status"_a.noconvert(),
        "pool"_a = nb::none(), nb::kw_only(), "verify"_a = true, "planes"_a = 0,
        nb::sig("def gather(spans: Spans, out: NDArray[np.uint8], status: NDArray[np.int32], "
                "pool: ThreadPool | None = None, *, verify: bool = True, planes: int = 0) -> Job"),
        "Copy each span into its row of ``out``, (n, row_bytes); another size is BAD_SHAPE. Spans\n"
        "of so many ``planes``, 1, 3 or 4, one behind the other, become their pixels.");
  m.def("read_ahead", &read_ahead, "spans"_a, "pool"_a = nb::none(),
        nb::sig("def read_ahead(spans: Spans, " POOL_TO_JOB),
        "Ask the kernel to read these spans of mapped files ahead, neighbours merged, unless a\n"
        "look at 64 places finds them in memory. Blocks while the disk's queue is full: give it a\n"
        "pool of its own.");
  m.def("read_files_ahead", &read_files_ahead, "spans"_a, "descriptors"_a.noconvert(), "files"_a,
        "pool"_a = nb::none(),
        nb::sig("def read_files_ahead(spans: Spans, descriptors: NDArray[np.int32], "
                "files: Any, " POOL_TO_JOB),
        "Ask the kernel to read these spans of open files ahead, neighbours merged, whether they\n"
        "are in memory or not. ``descriptors`` and ``files`` as of ``read_spans``.");
  m.def("read_spans", &read_spans, "spans"_a, "descriptors"_a.noconvert(), "files"_a,
        "out"_a.noconvert(), "error"_a.noconvert(), "pool"_a = nb::none(),
        nb::sig("def read_spans(spans: Spans, descriptors: NDArray[np.int32], files: Any, "
                "out: NDArray[np.uint8], error: NDArray[np.int32], " POOL_TO_JOB),
        "Read the spans from open files, one after the other into ``out``. Of their buffers only\n"
        "the sizes matter; ``descriptors`` has one for each, ``files`` keeps them open.\n"
        "``error[i]`` is 0, errno, or -1 where the file ends before.");
}

}  // namespace fastio::python
