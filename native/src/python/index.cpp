// The index of a store bound to Python: arrays that are compared where they are touched, and
// look-ups in them.

#include <nanobind/stl/optional.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/span_index.h"
#include "files/readahead.h"
#include "python/module.h"

namespace fastio::python {

using namespace nb::literals;

namespace {

using Bytes1 = Array<const std::uint8_t, 1>;
using Uint32s = Array<const std::uint32_t, 1>;
using Uint32sOut = Array<std::uint32_t, 1>;

/// fastio::Pieces, with the arrays that it refers to.
class PyPieces {
 public:
  PyPieces(Bytes1 bytes, Uint32s expected, std::size_t piece_bytes)
      : bytes_(std::move(bytes)),
        expected_(std::move(expected)),
        pieces_({bytes_.data(), bytes_.size()},
                {expected_.data(), checked_count(bytes_, expected_, piece_bytes)}, piece_bytes) {}

  [[nodiscard]] std::size_t size() const { return expected_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_.size(); }
  [[nodiscard]] bool is_whole() const { return pieces_.is_whole(); }
  [[nodiscard]] fastio::Pieces* pieces() { return &pieces_; }

  std::optional<std::size_t> compare(std::size_t start, std::size_t stop) {
    if (start > stop || stop > bytes_.size()) {
      throw nb::value_error(("bytes " + std::to_string(start) + " to " + std::to_string(stop) +
                             " of " + std::to_string(bytes_.size()))
                                .c_str());
    }
    if (start == stop || pieces_.is_whole()) return std::nullopt;
    std::size_t found;
    {
      const WithoutGil released;
      found = pieces_.compare(start, stop);
    }
    if (found == size()) return std::nullopt;
    return found;
  }

 private:
  static std::size_t checked_count(const Bytes1& bytes, const Uint32s& expected,
                                   std::size_t piece_bytes) {
    if (!std::has_single_bit(piece_bytes)) {
      throw nb::value_error("piece_bytes must be a power of two");
    }
    expect_length("expected", expected.size(), fastio::Pieces::count(bytes.size(), piece_bytes));
    return expected.size();
  }

  Bytes1 bytes_;
  Uint32s expected_;
  fastio::Pieces pieces_;
};

/// Any numbers that an index may have.
using IndexNumbers = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PiecesHandle = std::optional<nb::handle_t<PyPieces>>;

/// fastio::SpanIndex, with the arrays that it refers to.
class PySpanIndex {
 public:
  PySpanIndex(Int64s ends, Int64s limits, IndexNumbers starts, IndexNumbers sizes,
              const Checksums& checksums, const PiecesHandle& start_pieces,
              const PiecesHandle& size_pieces, const PiecesHandle& checksum_pieces,
              std::int64_t unit, std::int64_t base, std::int64_t exact, std::int64_t multiple)
      : ends_(std::move(ends)),
        limits_(std::move(limits)),
        starts_(std::move(starts)),
        sizes_(std::move(sizes)),
        checksums_(checksums) {
    const std::size_t count = starts_.shape(0);
    expect_length("sizes", sizes_.shape(0), count);
    expect_length("limits", limits_.size(), ends_.size());
    if (unit < 1 || base < 0 || multiple < 0) throw nb::value_error("unit, base or multiple");
    index_ = {{ends_.data(), ends_.size()},
              {limits_.data(), limits_.size()},
              numbers("starts", starts_, unit, base, start_pieces),
              numbers("sizes", sizes_, unit, 0, size_pieces),
              checked(checksums_, count),
              held(checksum_pieces, count * sizeof(std::uint32_t)),
              count,
              exact,
              multiple};
  }

  std::optional<std::size_t> pick(const Int64s& indices, const Array<std::int32_t, 1>& shard,
                                  const Array<std::int64_t, 1>& starts,
                                  const Array<std::int64_t, 1>& sizes,
                                  const std::optional<Uint32sOut>& checksums) const {
    expect_length("shard", shard.size(), indices.size());
    expect_length("starts", starts.size(), indices.size());
    expect_length("sizes", sizes.size(), indices.size());
    if (checksums) {
      if (index_.checksums == nullptr) throw nb::value_error("the index has no checksums");
      expect_length("checksums", checksums->size(), indices.size());
    }
    const fastio::PickedSpans out{shard.data(), starts.data(), sizes.data(),
                                  checksums ? checksums->data() : nullptr};
    std::size_t bad;
    {
      constexpr std::size_t worth_releasing = 4096;
      std::optional<WithoutGil> released;
      if (indices.size() >= worth_releasing) released.emplace();
      const std::span<const std::int64_t> samples{indices.data(), indices.size()};
      fastio::read_index_ahead(index_, samples, checksums.has_value());
      bad = fastio::pick(index_, samples, out);
    }
    if (bad == indices.size()) return std::nullopt;
    const std::int64_t sample = indices.data()[bad];
    if (sample < 0 || static_cast<std::size_t>(sample) >= index_.count) {
      throw nb::index_error(
          ("sample " + std::to_string(sample) + " of " + std::to_string(index_.count)).c_str());
    }
    return bad;
  }

  [[nodiscard]] const fastio::SpanIndex& index() const { return index_; }

 private:
  fastio::Pieces* held(const PiecesHandle& pieces, std::size_t bytes) {
    if (!pieces) return nullptr;
    auto& own = nb::cast<PyPieces&>(*pieces);
    expect_length("bytes of pieces", own.bytes(), bytes);
    kept_.push_back(nb::borrow(*pieces));
    return own.pieces();
  }

  fastio::IndexNumbers numbers(const char* name, const IndexNumbers& array, std::int64_t unit,
                               std::int64_t base, const PiecesHandle& pieces) {
    const std::size_t width = array.itemsize();
    if (array.dtype() != nb::dtype<std::int64_t>() && array.dtype() != nb::dtype<std::uint32_t>() &&
        array.dtype() != nb::dtype<std::uint16_t>() && array.dtype() != nb::dtype<std::uint8_t>()) {
      throw nb::type_error(
          (std::string(name) + ": expected int64, uint32, uint16 or uint8").c_str());
    }
    return {static_cast<const std::uint8_t*>(array.data()), width, unit, base,
            held(pieces, array.shape(0) * width)};
  }

  Int64s ends_, limits_;
  IndexNumbers starts_, sizes_;
  Checksums checksums_;
  std::vector<nb::object> kept_;
  fastio::SpanIndex index_{};
};

std::optional<PyJob> look_ahead(const nb::handle_t<PySpanIndex>& self, const Int64s& indices,
                                const PoolHandle& pool, bool checksums) {
  const fastio::SpanIndex& index = nb::cast<PySpanIndex&>(self).index();
  if (fastio::is_compared(index, checksums)) return std::nullopt;
  constexpr std::size_t grain = 1024;
  auto task = fastio::look_ahead_task(index, {indices.data(), indices.size()}, checksums);
  return begin(std::move(task), {indices.size(), grain}, pool, keep(nb::borrow(self), indices));
}

}  // namespace

void bind_index(nb::module_& m) {
  nb::class_<PyPieces>(m, "Pieces",
                       "Bytes with a CRC-32 for each piece of them, compared when they are first "
                       "asked for.\n\n"
                       "A piece that was found right is not looked at again. Threads may share it.")
      .def(nb::init<Bytes1, Uint32s, std::size_t>(), "bytes"_a.noconvert(),
           "expected"_a.noconvert(), "piece_bytes"_a,
           nb::sig("def __init__(self, bytes: NDArray[np.uint8], expected: NDArray[np.uint32], "
                   "piece_bytes: int) -> None"))
      .def("__len__", &PyPieces::size)
      .def_prop_ro("is_whole", &PyPieces::is_whole, "Whether every piece was found right.")
      .def(
          "compare", &PyPieces::compare, "start"_a, "stop"_a,
          nb::sig("def compare(self, start: int, stop: int) -> int | None"),
          "Compare the pieces of these bytes; the number of the first one that differs, None when\n"
          "none does.");

  nb::class_<PySpanIndex>(
      m, "SpanIndex",
      "Where the values of all samples lie, as files have it: sample i's ``starts[i] * unit + "
      "base``\n"
      "and ``sizes[i] * unit``, both int64, uint32, uint16 or uint8.\n\n"
      "Shard k has the samples before ``ends[k]``, in a file of ``limits[k]`` bytes. Values have\n"
      "``exact`` bytes, or if that is negative a multiple of ``multiple`` (0: none).")
      .def(nb::init<Int64s, Int64s, IndexNumbers, IndexNumbers, const Checksums&,
                    const PiecesHandle&, const PiecesHandle&, const PiecesHandle&, std::int64_t,
                    std::int64_t, std::int64_t, std::int64_t>(),
           "ends"_a.noconvert(), "limits"_a.noconvert(), "starts"_a.noconvert(),
           "sizes"_a.noconvert(), "checksums"_a.noconvert().none() = nb::none(), nb::kw_only(),
           "start_pieces"_a = nb::none(), "size_pieces"_a = nb::none(),
           "checksum_pieces"_a = nb::none(), "unit"_a = 1, "base"_a = 0, "exact"_a = -1,
           "multiple"_a = 1,
           nb::sig("def __init__(self, ends: NDArray[np.int64], limits: NDArray[np.int64], starts: "
                   "NDArray[Any], sizes: NDArray[Any], checksums: NDArray[np.uint32] | "
                   "None = None, *, start_pieces: Pieces | None = None, size_pieces: Pieces | None "
                   "= None, checksum_pieces: Pieces | None = None, unit: int = 1, base: int = 0, "
                   "exact: int = -1, multiple: int = 1) -> None"))
      .def("pick", &PySpanIndex::pick, "indices"_a.noconvert(), "shard"_a.noconvert(),
           "starts"_a.noconvert(), "sizes"_a.noconvert(), "checksums"_a.noconvert().none(),
           nb::sig("def pick(self, indices: NDArray[np.int64], shard: NDArray[np.int32], starts: "
                   "NDArray[np.int64], sizes: NDArray[np.int64], checksums: NDArray[np.uint32] | "
                   "None) -> int | None"),
           "Write the entries of these samples, all of them in bytes, to the other arrays.\n\n"
           "Returns the position of the first one whose part of the index differs from its\n"
           "checksums, or whose value cannot lie there; None when all are good. IndexError for a\n"
           "sample that does not exist.")
      .def("look_ahead", &look_ahead, "indices"_a.noconvert(), "pool"_a.none() = nb::none(),
           nb::kw_only(), "checksums"_a,
           nb::sig("def look_ahead(self, indices: NDArray[np.int64], pool: ThreadPool | None = "
                   "None, *, checksums: bool) -> Job | None"),
           "Read and compare what ``pick`` of these samples will look at; None when all of the\n"
           "index was compared. It waits for the disk: give it a pool of its own. ``pick`` finds\n"
           "the damage.");
}

}  // namespace fastio::python
