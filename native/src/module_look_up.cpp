#include "fastio/look_up.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using Values = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

PyJob look_up(const Array<const std::uint8_t, 2>& pictures, const Values& tables, const Values& out,
              const PoolHandle& pool, bool planar) {
  const std::size_t count = pictures.shape(0);
  const std::size_t picture_bytes = pictures.shape(1);
  const std::size_t channels = tables.shape(0);
  if (tables.shape(1) != 256 || channels == 0 || picture_bytes % channels != 0) {
    throw nb::value_error("tables: expected 256 values for each channel of the pictures");
  }
  if ((out.itemsize() != 2 && out.itemsize() != 4) || tables.itemsize() != out.itemsize()) {
    throw nb::value_error("tables, out: expected values of 2 or 4 bytes, both the same");
  }
  if (out.shape(0) != count || out.shape(1) != picture_bytes) {
    throw nb::value_error("out: expected a value for each byte of the pictures");
  }
  const fastio::LookUp work{.pictures = pictures.data(),
                            .picture_bytes = picture_bytes,
                            .channels = channels,
                            .planar = planar,
                            .tables = tables.data(),
                            .out = out.data(),
                            .value_bytes = out.itemsize()};
  return begin(fastio::look_up_task(work), {count, grain_for(picture_bytes)}, pool,
               keep(pictures, tables, out));
}

}  // namespace

void bind_look_up(nb::module_& m) {
  m.def("look_up", &look_up, "pictures"_a.noconvert(), "tables"_a.noconvert(), "out"_a.noconvert(),
        "pool"_a = nb::none(), nb::kw_only(), "planar"_a = false,
        nb::sig("def look_up(pictures: NDArray[np.uint8], tables: NDArray[Any], out: NDArray[Any], "
                "pool: ThreadPool | None = None, *, planar: bool = False) -> Job"),
        "Replace each byte of ``pictures``, (n, bytes), by its value in the table of its channel,\n"
        "(channels, 256), of 2 or 4 bytes each; ``out`` is (n, bytes). ``planar``: channel behind\n"
        "channel, else pixel behind pixel.");
}

}  // namespace fastio::python
