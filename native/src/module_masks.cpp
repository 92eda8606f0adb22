// Masks bound to Python.
#include <cstring>

#include "fastio/mask.h"
#include "fastio/probe.h"
#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using PlanArray = nb::ndarray<const std::int32_t, nb::shape<-1, 13>, nb::c_contig, nb::device::cpu>;
using SizeArray = nb::ndarray<const std::int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using NumberArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(const std::string& text) {
  throw nb::value_error(text.c_str());
}

/// The first row of `out`: (n, H, W), (n, H, W, C) or, planar, (n, C, H, W).
NumberRow row_of(const NumberArray& out, bool planar) {
  const bool is_wide = out.dtype() == nb::dtype<std::uint16_t>();
  if (!is_wide && out.dtype() != nb::dtype<std::uint8_t>()) {
    refuse("out: expected an array of uint8 or uint16");
  }
  if (out.ndim() != 3 && out.ndim() != 4) refuse("out: expected 3 or 4 dimensions");
  const bool has_colors = out.ndim() == 4;
  const std::size_t first = planar && has_colors ? 2 : 1;
  const std::size_t channels = has_colors ? out.shape(planar ? 1 : 3) : 1;
  if (channels < 1 || channels > 4) {
    refuse("out has " + std::to_string(channels) + " channels, expected 1 to 4");
  }
  return {static_cast<std::uint8_t*>(out.data()),
          out.shape(first),
          out.shape(first + 1),
          channels,
          is_wide ? std::size_t{2} : std::size_t{1},
          planar};
}

/// The plans by copy, so that nobody changes them under a running batch.
std::unique_ptr<Plan[]> plans_of(const PlanArray& array, const NumberRow& row) {
  const std::size_t count = array.shape(0);
  auto plans = std::make_unique<Plan[]>(count);
  if (count > 0) std::memcpy(plans.get(), array.data(), count * sizeof(Plan));
  for (std::size_t i = 0; i < count; ++i) {
    const char* fault = plan_fault(plans[i], row.height, row.width);
    if (fault != nullptr) refuse("plan " + std::to_string(i) + ": " + fault);
  }
  return plans;
}

PyJob decode_masks(const Spans& spans, const NumberArray& out, const StatusArray& status,
                   const PoolHandle& pool, bool verify, const std::optional<PlanArray>& plan,
                   const std::optional<SizeArray>& sizes, std::size_t fill, bool planar,
                   std::optional<std::size_t> max_pixels) {
  auto bytes = resolve(spans);
  const std::size_t count = spans.size();
  const NumberRow row = row_of(out, planar);
  expect_length("out", out.shape(0), count);
  expect_length("status", status.size(), count);
  const std::size_t largest = row.number_bytes == 1 ? 0xFF : 0xFFFF;
  if (fill > largest) {
    refuse("fill is " + std::to_string(fill) + ", out holds at most " + std::to_string(largest));
  }
  const Checksums checksums = spans.checksums(verify);
  MaskBatch batch{std::move(bytes),
                  nullptr,
                  nullptr,
                  {row, static_cast<std::uint16_t>(fill), checked(checksums, count), status.data()},
                  max_pixels.value_or(any_pixels)};
  if (plan) {
    expect_length("plan", plan->shape(0), count);
    batch.plans = plans_of(*plan, row);
  }
  if (sizes) {
    expect_length("sizes", sizes->shape(0), count);
    batch.sizes = std::make_unique<MaskSize[]>(count);
    if (count > 0) std::memcpy(batch.sizes.get(), sizes->data(), count * sizeof(MaskSize));
  }
  // Decoding is some ten times the work of copying.
  return begin(mask_task(std::move(batch)), {count, grain_for(8 * row.bytes())}, pool,
               keep(spans.buffers, checksums, out, status));
}

void mask_forms(
    const Spans& spans,
    const nb::ndarray<std::int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>& out) {
  const auto bytes = resolve(spans);
  expect_length("out", out.shape(0), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    MaskForm form{};
    const bool known = read_mask_form(bytes[i], form) == Status::ok;
    out.data()[2 * i] = known ? static_cast<std::int32_t>(form.channels) : 0;
    out.data()[2 * i + 1] = known ? std::max(form.bits, 8) : 0;
  }
}

}  // namespace

void bind_masks(nb::module_& m) {
  m.def("mask_forms", &mask_forms, "spans"_a, "out"_a.noconvert(),
        nb::sig("def mask_forms(spans: Spans, out: NDArray[np.int32]) -> None"),
        "Read the headers of masks. ``out`` is (n, 2): the channels of a pixel (1 for a palette)\n"
        "and the bits of each number, 8 or 16; zeros for what is no PNG or JPEG.");
  m.def("decode_masks", &decode_masks, "spans"_a, "out"_a.noconvert(), "status"_a.noconvert(),
        "pool"_a = nb::none(), nb::kw_only(), "verify"_a = true, "plan"_a.noconvert() = nb::none(),
        "sizes"_a.noconvert() = nb::none(), "fill"_a = 0, "planar"_a = false,
        "max_pixels"_a = nb::none(),
        nb::sig("def decode_masks(spans: Spans, out: NDArray[Any], status: NDArray[np.int32], "
                "pool: ThreadPool | None = None, *, verify: bool = True, "
                "plan: NDArray[np.int32] | None = None, sizes: NDArray[np.int32] | None = None, "
                "fill: int = 0, planar: bool = False, max_pixels: int | None = None) -> Job"),
        "Decode each mask into ``out[i]``, its numbers as stored: palette indices, 16 bits.\n\n"
        "``out`` is uint8 or uint16, (n, H, W), (n, H, W, C) or, ``planar``, (n, C, H, W). With a\n"
        "``plan`` (see ``decode_transformed``), pixels are chosen as torch's\n"
        "interpolate(mode='nearest') chooses them, and ``fill`` is the number around them. A mask\n"
        "that has not the size of row i of ``sizes`` (n, 2), other channels than ``out`` or too\n"
        "many bits for it is BAD_SHAPE; one with more than ``max_pixels`` is TOO_LARGE.");
}

}  // namespace fastio::python
