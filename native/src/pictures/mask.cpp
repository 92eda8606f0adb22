#include "pictures/mask.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/checksum.h"
#include "pictures/worker.h"
#include "transform/rows.h"

namespace fastio {
namespace {

std::size_t unsign(std::int32_t value) noexcept {
  return static_cast<std::size_t>(value);
}

/// One axis of a plan: `count` of `virtual_size` positions, from `first` on.
struct Axis {
  std::int32_t size;
  std::int32_t virtual_size;
  std::int32_t first;
  std::int32_t count;
};

/// The pixel of each position, ascending.
void positions(const Axis& axis, std::uint32_t* out) noexcept {
  const float scale = static_cast<float>(axis.size) / static_cast<float>(axis.virtual_size);
  for (std::int32_t i = 0; i < axis.count; ++i) {
    const float exact = std::floor(static_cast<float>(axis.first + i) * scale);
    out[i] = static_cast<std::uint32_t>(std::min(static_cast<std::int32_t>(exact), axis.size - 1));
  }
}

/// The first one and how many pixels up to the last one; the positions become those from it.
std::pair<std::size_t, std::size_t> rebased(std::uint32_t* out, std::int32_t count) noexcept {
  const std::uint32_t low = out[0];
  for (std::int32_t i = 0; i < count; ++i) out[i] -= low;
  return {low, std::size_t{out[count - 1]} + 1};
}

/// Where numbers go, and which ones.
struct Picks {
  const std::uint32_t* columns;
  const std::uint32_t* lines;
  std::size_t width;
  std::size_t height;
  bool is_run;       ///< the columns follow each other
  bool is_mirrored;  ///< the last one first
};

template <typename Number>
struct Target {
  Number* data;        ///< of the window's first pixel
  std::size_t stride;  ///< numbers from one line to the next
  std::size_t plane;   ///< and from one channel to the next, if planar
};

template <typename In, typename Out, std::size_t channels, bool planar>
void pick_line(const Picks& picks, const In* in, Out* out, std::size_t plane) noexcept {
  if constexpr (std::is_same_v<In, Out> && !planar) {
    if (picks.is_run && !picks.is_mirrored) {
      std::memcpy(out, in + picks.columns[0] * channels, picks.width * channels * sizeof(Out));
      return;
    }
    if constexpr (sizeof(Out) == 1 && channels != 2) {
      if (picks.is_run) {
        const PixelView run{in + picks.columns[picks.width - 1] * channels, 0};
        mirror_rows(channels, simd_level())(run, {out, 0}, picks.width, 1);
        return;
      }
    }
  }
  for (std::size_t x = 0; x < picks.width; ++x) {
    const In* pixel = in + picks.columns[x] * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      out[planar ? c * plane + x : x * channels + c] = pixel[c];
    }
  }
}

template <typename In, typename Out, std::size_t channels, bool planar>
void pick(const Picks& picks, const NumberView& in, const Target<Out>& out) noexcept {
  for (std::size_t y = 0; y < picks.height; ++y) {
    Out* line = out.data + y * out.stride;
    if (y > 0 && picks.lines[y] == picks.lines[y - 1]) {
      const std::size_t run = picks.width * (planar ? 1 : channels);
      for (std::size_t c = 0; c < (planar ? channels : 1); ++c) {
        std::memcpy(line + c * out.plane, line + c * out.plane - out.stride, run * sizeof(Out));
      }
      continue;
    }
    const std::uint8_t* from = in.data + picks.lines[y] * in.stride;
    pick_line<In, Out, channels, planar>(picks, reinterpret_cast<const In*>(from), line, out.plane);
  }
}

template <typename In, typename Out, std::size_t channels>
void pick_into(const Picks& picks, const NumberView& in, const NumberRow& row, std::size_t left,
               std::size_t top) noexcept {
  auto* data = reinterpret_cast<Out*>(row.data);
  if (channels > 1 && row.planar) {
    const Target<Out> out{data + top * row.width + left, row.width, row.height * row.width};
    pick<In, Out, channels, true>(picks, in, out);
  } else {
    const Target<Out> out{data + (top * row.width + left) * channels, row.width * channels, 0};
    pick<In, Out, channels, false>(picks, in, out);
  }
}

template <typename In, typename Out>
void pick_channels(const Picks& picks, const NumberView& in, const NumberRow& row, std::size_t left,
                   std::size_t top) noexcept {
  switch (row.channels) {
    case 1: pick_into<In, Out, 1>(picks, in, row, left, top); break;
    case 2: pick_into<In, Out, 2>(picks, in, row, left, top); break;
    case 3: pick_into<In, Out, 3>(picks, in, row, left, top); break;
    default: pick_into<In, Out, 4>(picks, in, row, left, top); break;
  }
}

}  // namespace

bool NearestPicker::begin(const Plan& plan) noexcept {
  plan_ = plan;
  const std::size_t width = unsign(plan.window_w);
  const std::size_t height = unsign(plan.window_h);
  auto* columns =
      reinterpret_cast<std::uint32_t*>(memory_.reserve((width + height) * sizeof(std::uint32_t)));
  if (columns == nullptr) return false;
  std::uint32_t* lines = columns + width;
  positions({plan.box_w, plan.virtual_w, plan.window_x, plan.window_w}, columns);
  positions({plan.box_h, plan.virtual_h, plan.window_y, plan.window_h}, lines);
  const auto [x, region_width] = rebased(columns, plan.window_w);
  const auto [y, region_height] = rebased(lines, plan.window_h);
  region_ = {unsign(plan.box_x) + x, unsign(plan.box_y) + y, region_width, region_height};
  if (plan.flips_x()) std::reverse(columns, columns + width);
  if (plan.flips_y()) std::reverse(lines, lines + height);
  columns_ = columns;
  lines_ = lines;
  return true;
}

void NearestPicker::finish(const NumberView& in, std::uint16_t fill,
                           const NumberRow& out) const noexcept {
  const std::size_t width = unsign(plan_.window_w);
  const std::size_t height = unsign(plan_.window_h);
  if (width < out.width || height < out.height) fill_numbers(fill, out);
  const bool is_run = plan_.box_w == plan_.virtual_w;
  const Picks picks{columns_, lines_, width, height, is_run, plan_.flips_x()};
  const std::size_t x = unsign(plan_.place_x);
  const std::size_t y = unsign(plan_.place_y);
  const std::size_t left = plan_.flips_x() ? out.width - x - width : x;
  const std::size_t top = plan_.flips_y() ? out.height - y - height : y;
  if (in.number_bytes == 2) {
    pick_channels<std::uint16_t, std::uint16_t>(picks, in, out, left, top);
  } else if (out.number_bytes == 2) {
    pick_channels<std::uint8_t, std::uint16_t>(picks, in, out, left, top);
  } else {
    pick_channels<std::uint8_t, std::uint8_t>(picks, in, out, left, top);
  }
}

void fill_numbers(std::uint16_t fill, const NumberRow& out) noexcept {
  if (out.number_bytes == 1) {
    std::memset(out.data, fill, out.bytes());
  } else {
    std::fill_n(reinterpret_cast<std::uint16_t*>(out.data), out.bytes() / 2, fill);
  }
}

namespace {

/// One line of a plane, by the places of its pixels: `channels` numbers each.
template <typename Number>
void gather_line(const std::int64_t* places, std::size_t width, std::size_t channels,
                 const Number* in, Number fill, Number* out) noexcept {
  if (channels == 1) {
    for (std::size_t x = 0; x < width; ++x) {
      out[x] = places[x] < 0 ? fill : in[static_cast<std::size_t>(places[x])];
    }
    return;
  }
  for (std::size_t x = 0; x < width; ++x, out += channels) {
    if (places[x] < 0) {
      std::fill_n(out, channels, fill);
    } else {
      std::copy_n(in + static_cast<std::size_t>(places[x]) * channels, channels, out);
    }
  }
}

template <typename Number>
void gather(const std::int64_t* places, const NumberRow& row, std::size_t y, const void* copy,
            double fill) noexcept {
  const std::size_t planes = row.planar ? row.channels : 1;
  const std::size_t channels = row.planar ? 1 : row.channels;
  const std::size_t plane = row.height * row.width * channels;
  const auto* in = static_cast<const Number*>(copy);
  auto* out = reinterpret_cast<Number*>(row.data) + y * row.width * channels;
  for (std::size_t p = 0; p < planes; ++p, in += plane, out += plane) {
    gather_line<Number>(places, row.width, channels, in, static_cast<Number>(fill), out);
  }
}

}  // namespace

bool NumberMover::run(const ColourProgram& program, const NumberRow& row) noexcept {
  for (std::size_t i = 0; i < program.count; ++i) {
    const ColourWork& work = program.steps[i];
    if (static_cast<ColourStep>(work.step) == ColourStep::none || row.bytes() == 0) continue;
    std::uint8_t* const copy = copy_.reserve(row.bytes());
    auto* const places =
        reinterpret_cast<std::int64_t*>(places_.reserve(row.width * sizeof(std::int64_t)));
    auto* const floats =
        reinterpret_cast<float*>(floats_.reserve(floats_of_places(row.width) * sizeof(float)));
    if (copy == nullptr || places == nullptr || floats == nullptr) return false;
    std::memcpy(copy, row.data, row.bytes());
    for (std::size_t y = 0; y < row.height; ++y) {
      moved_places(work, row.height, row.width, y, floats, places);
      if (row.number_bytes == 1) {
        gather<std::uint8_t>(places, row, y, copy, work.amounts[10]);
      } else {
        gather<std::uint16_t>(places, row, y, copy, work.amounts[10]);
      }
    }
  }
  return true;
}

Status read_mask_form(Bytes file, MaskForm& form) noexcept {
  form.kind = image_kind(file);
  switch (form.kind) {
    case ImageKind::png: {
      PngHeader header;
      const Status status = read_png_header(file, header);
      form.height = header.height;
      form.width = header.width;
      form.channels = static_cast<std::size_t>(header.samples());
      form.bits = header.depth;
      return status;
    }
    case ImageKind::jpeg: {
      const ImageInfo info = probe_image(file);
      form.height = static_cast<std::size_t>(info.height);
      form.width = static_cast<std::size_t>(info.width);
      form.channels = static_cast<std::size_t>(info.channels);
      form.bits = 8;
      return info.status;
    }
    case ImageKind::unknown:
      return file.size() < signature_bytes ? Status::truncated : Status::not_image;
    default: return Status::unsupported;
  }
}

namespace {

/// All of a picture, unchanged.
Plan whole(const MaskForm& form) noexcept {
  const auto height = static_cast<std::int32_t>(form.height);
  const auto width = static_cast<std::int32_t>(form.width);
  return {0, 0, width, height, width, height, 0, 0, width, height, 0, 0, 0};
}

class MaskTask final : public Task {
 public:
  explicit MaskTask(MaskBatch batch) noexcept : batch_(std::move(batch)) {}

  [[nodiscard]] const char* what() const noexcept override { return "fastio.decode"; }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      batch_.rows.status[i] = static_cast<std::int32_t>(or_pillow(decode(worker, i)));
    }
  }

 private:
  [[nodiscard]] Status decode(Worker& worker, std::size_t i) const noexcept {
    const MaskRows& rows = batch_.rows;
    const Bytes file = batch_.spans[i];
    if (rows.checksums != nullptr && crc32(file) != rows.checksums[i]) return Status::bad_checksum;
    NumberRow row = rows.first;
    row.data += i * row.bytes();
    if (batch_.moves.count == 0) return fill(worker, i, row, rows.fill);
    const ColourProgram program = batch_.moves.of(i);
    if (begins_with_canvas(program)) return through_canvases(worker, i, program, row);
    const Status status = fill(worker, i, row, rows.fill);
    if (status != Status::ok) return status;
    return worker.mover.run(program, row) ? Status::ok : Status::no_memory;
  }

  /// The row, one plan after the other, each with the steps behind it.
  [[nodiscard]] Status through_canvases(Worker& worker, std::size_t i, const ColourProgram& program,
                                        const NumberRow& out) const noexcept {
    NumberRow from{};
    std::size_t at = 0;  // the canvas
    for (std::size_t turn = 0;; ++turn) {
      const Canvas canvas = canvas_of(program.steps[at]);
      const std::size_t next = next_plan(program, at);
      NumberRow to = out;
      if (next < program.count) {
        to = {nullptr, canvas.height, canvas.width, out.channels, out.number_bytes, false};
        to.data = worker.canvases[turn % 2].reserve(to.bytes());
        if (to.data == nullptr) return Status::no_memory;
      }
      const Status status = at == 0
                                ? fill(worker, i, to, canvas.fill[0])
                                : render(worker, program.steps[at - 1], canvas.fill[0], from, to);
      if (status != Status::ok) return status;
      if (!worker.mover.run({program.steps + at + 1, next - at - 1}, to)) return Status::no_memory;
      if (next == program.count) return Status::ok;
      from = to;
      at = next + 1;
    }
  }

  /// Fills a mask by a plan of another one, which is not planar.
  [[nodiscard]] static Status render(Worker& worker, const ColourWork& work, std::uint16_t fill,
                                     const NumberRow& from, const NumberRow& to) noexcept {
    const Plan plan = plan_of(work);
    if (plan.is_empty()) {
      fill_numbers(fill, to);
      return Status::ok;
    }
    if (!worker.nearest.begin(plan)) return Status::no_memory;
    const Region& region = worker.nearest.region();
    const std::size_t pixel_bytes = from.channels * from.number_bytes;
    const std::size_t stride = from.width * pixel_bytes;
    const std::uint8_t* const first = from.data + region.y * stride + region.x * pixel_bytes;
    worker.nearest.finish({first, stride, from.channels, from.number_bytes}, fill, to);
    return Status::ok;
  }

  [[nodiscard]] Status fill(Worker& worker, std::size_t i, const NumberRow& row,
                            std::uint16_t outside) const noexcept {
    const Bytes file = batch_.spans[i];
    if (batch_.plans != nullptr && batch_.plans[i].is_empty()) {
      fill_numbers(outside, row);
      return Status::ok;
    }
    MaskForm form{};
    const Status status = read_mask_form(file, form);
    if (status != Status::ok) return status;
    if (form.width * form.height > batch_.max_pixels) return Status::too_large;
    if (!fits(form, i)) return Status::bad_shape;
    if (!worker.nearest.begin(batch_.plans ? batch_.plans[i] : whole(form))) {
      return Status::no_memory;
    }
    NumberView numbers{};
    const Status decoded = decode_region(worker, file, form, numbers);
    if (decoded == Status::ok) worker.nearest.finish(numbers, outside, row);
    return decoded;
  }

  /// Whether a mask of this form can go into its row.
  [[nodiscard]] bool fits(const MaskForm& form, std::size_t i) const noexcept {
    const NumberRow& row = batch_.rows.first;
    if (form.channels != row.channels) return false;
    if (form.bits > 8 && (row.number_bytes == 1 || form.channels > 1)) return false;
    if (batch_.sizes != nullptr) {
      const MaskSize size = batch_.sizes[i];
      if (std::cmp_not_equal(form.height, size.height)) return false;
      if (std::cmp_not_equal(form.width, size.width)) return false;
    }
    if (batch_.plans != nullptr) return box_of(batch_.plans[i]).is_inside(form.width, form.height);
    return form.height == row.height && form.width == row.width;
  }

  [[nodiscard]] Status decode_region(Worker& worker, Bytes file, const MaskForm& form,
                                     NumberView& numbers) const noexcept {
    const Region& region = worker.nearest.region();
    const bool verify_data = batch_.rows.checksums == nullptr;
    if (form.kind == ImageKind::png) {
      return worker.png.decode_numbers(file, region, verify_data, numbers);
    }
    if (form.channels == 2) return Status::unsupported;
    const PicturePart part{region, region, static_cast<int>(form.channels)};
    PixelView pixels{};
    const Status status = worker.jpeg.decode_part(file, part, pixels);
    numbers = {pixels.data, pixels.stride, form.channels, 1};
    return status;
  }

  const MaskBatch batch_;
};

}  // namespace

std::unique_ptr<Task> mask_task(MaskBatch batch) noexcept {
  return std::make_unique<MaskTask>(std::move(batch));
}

}  // namespace fastio
