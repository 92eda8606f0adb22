#include "transform/transform.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "core/checksum.h"
#include "pictures/decode.h"
#include "pictures/probe.h"
#include "pictures/worker.h"
#include "platform/platform.h"

namespace fastio {
namespace {

std::size_t unsign(std::int32_t value) noexcept {
  return static_cast<std::size_t>(value);
}

/// value * alpha / 255, rounded.
std::uint8_t multiplied(unsigned value, unsigned alpha) noexcept {
  const unsigned product = value * alpha + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

void premultiply_row(const std::uint8_t* in, std::uint8_t* out, std::size_t pixels) noexcept {
  for (std::size_t i = 0; i < 4 * pixels; i += 4) {
    for (std::size_t c = 0; c < 3; ++c) out[i + c] = multiplied(in[i + c], in[i + 3]);
    out[i + 3] = in[i + 3];
  }
}

void unpremultiply_row(std::uint8_t* row, std::size_t pixels) noexcept {
  for (std::size_t i = 0; i < 4 * pixels; i += 4) {
    const unsigned alpha = row[i + 3];
    if (alpha == 0 || alpha == 255) continue;
    for (std::size_t c = 0; c < 3; ++c) {
      row[i + c] = static_cast<std::uint8_t>(std::min(255U, 255U * row[i + c] / alpha));
    }
  }
}

/// Fills `pixels` pixels: what is there is copied behind itself until all is there.
void fill_pixels(const std::array<std::uint8_t, 4>& fill, int channels, std::uint8_t* out,
                 std::size_t pixels) noexcept {
  const auto size = static_cast<std::size_t>(channels);
  const std::size_t bytes = pixels * size;
  if (std::all_of(fill.begin(), fill.begin() + channels, [&](auto c) { return c == fill[0]; })) {
    std::memset(out, fill[0], bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t next = done == 0 ? size : std::min(done, bytes - done);
    std::memcpy(out + done, done == 0 ? fill.data() : out, next);
    done += next;
  }
}

/// The box along one axis of a picture shrunk by a power of 2: its ends lie within pixels.
struct Side {
  double start;  ///< from the first pixel that the box touches
  double size;
  std::int32_t low;  ///< that pixel
  std::int32_t pixels;
};

Side side_of(std::int32_t start, std::int32_t size, std::int32_t shrink) noexcept {
  const std::int32_t low = start / shrink;
  const std::int32_t high = (start + size + shrink - 1) / shrink;
  return {static_cast<double>(start) / shrink - low, static_cast<double>(size) / shrink, low,
          high - low};
}

/// The whole virtual picture of an axis is the box.
Axis axis_of(const Side& box, std::int32_t virtual_size, std::int32_t first, std::int32_t count,
             bool mirrored) noexcept {
  return {box.start, box.size, 0, box.pixels, virtual_size, first, count, mirrored};
}

/// Exchanges top and bottom of a row of a batch.
void exchange_lines(const Picture& row, bool planar) noexcept {
  const std::size_t planes = planar ? static_cast<std::size_t>(row.channels) : 1;
  const std::size_t bytes = planar ? row.width : row.row_bytes();
  for (std::size_t plane = 0; plane < planes; ++plane) {
    std::uint8_t* const first = row.data + plane * row.height * bytes;
    for (std::size_t y = 0; y < row.height / 2; ++y) {
      std::uint8_t* const line = first + y * bytes;
      std::swap_ranges(line, line + bytes, first + (row.height - 1 - y) * bytes);
    }
  }
}

/// Rows of pixels as they are. For those of small pictures a call of memcpy costs more than its
/// work: they are copied 16 bytes at a time, the last of which may overlap.
void copy_rows(const PixelView& in, const PixelTarget& out, std::size_t bytes,
               std::size_t rows) noexcept {
  constexpr std::size_t block = 16;
  constexpr std::size_t worth_a_call = 256;
  for (std::size_t y = 0; y < rows; ++y) {
    const std::uint8_t* from = in.data + y * in.stride;
    std::uint8_t* to = out.data + y * out.stride;
    if (bytes < block || bytes >= worth_a_call) {
      std::memcpy(to, from, bytes);
      continue;
    }
    for (std::size_t x = 0; x + block <= bytes; x += block) std::memcpy(to + x, from + x, block);
    std::memcpy(to + bytes - block, from + bytes - block, block);
  }
}

}  // namespace

void fill_row(const TransformOptions& options, const Picture& out) noexcept {
  const std::size_t pixels = out.height * out.width;
  if (!options.planar) {
    fill_pixels(options.fill, out.channels, out.data, pixels);
    return;
  }
  for (std::size_t c = 0; c < static_cast<std::size_t>(out.channels); ++c) {
    std::memset(out.data + c * pixels, options.fill[c], pixels);
  }
}

void split_channels(const Picture& picture, std::uint8_t* planes) noexcept {
  const std::size_t pixels = picture.height * picture.width;
  split_rows(picture.channels, simd_level())({picture.data, 0}, {planes, 0, pixels}, pixels, 1,
                                             false);
}

void join_channels(const std::uint8_t* planes, const Picture& picture) noexcept {
  const std::size_t pixels = picture.height * picture.width;
  join_rows(picture.channels, simd_level())({planes, 0, pixels}, {picture.data, 0}, pixels, 1);
}

std::size_t shrink_of(const Plan& plan, const TransformOptions& options) noexcept {
  if (!options.fast || options.filter == Filter::nearest) return 1;
  constexpr std::int32_t most = 8;   // that libjpeg-turbo has fast code for, with 4 and 2
  constexpr std::int32_t spare = 2;  // at 1 there are errors of 46 levels, at 2 few of 8
  std::int32_t shrink = most;
  while (shrink > 1 && (plan.box_w < spare * shrink * plan.virtual_w ||
                        plan.box_h < spare * shrink * plan.virtual_h)) {
    shrink /= 2;
  }
  return unsign(shrink);
}

bool Transformer::begin(const Plan& plan, const TransformOptions& options,
                        std::size_t shrink) noexcept {
  plan_ = plan;
  options_ = options;
  const auto divisor = static_cast<std::int32_t>(shrink);
  const Side x = side_of(plan.box_x, plan.box_w, divisor);
  const Side y = side_of(plan.box_y, plan.box_h, divisor);
  if (!plan.resamples()) {
    region_ = {unsign(plan.window_x), unsign(plan.window_y), unsign(plan.window_w),
               unsign(plan.window_h)};
  } else {
    const bool prepared =
        resizer_.prepare(axis_of(x, plan.virtual_w, plan.window_x, plan.window_w, plan.flips_x()),
                         axis_of(y, plan.virtual_h, plan.window_y, plan.window_h, false),
                         options.filter, options.order);
    if (!prepared) return false;
    region_ = resizer_.region();
  }
  region_.x += unsign(x.low);
  region_.y += unsign(y.low);
  return true;
}

bool Transformer::finish(const PixelView& in, int in_channels, const Picture& out) noexcept {
  if (!upright(in, in_channels, out)) return false;
  if (plan_.flips_y()) exchange_lines(out, options_.planar);
  return true;
}

void Transformer::finish_planes(const PlanesView& in, const Picture& out) noexcept {
  const std::size_t window_width = unsign(plan_.window_w);
  if (window_width < out.width || unsign(plan_.window_h) < out.height) fill_row(options_, out);
  const std::size_t left = left_of_window(out);
  for (std::size_t c = 0; c < static_cast<std::size_t>(out.channels); ++c) {
    std::uint8_t* const plane = out.data + c * out.height * out.width;
    (void)window({in.data + c * in.plane, in.stride}, 1,
                 {plane + unsign(plan_.place_y) * out.width + left, out.width});
  }
  if (plan_.flips_y()) exchange_lines(out, true);
}

std::size_t Transformer::left_of_window(const Picture& out) const noexcept {
  return plan_.flips_x() ? out.width - unsign(plan_.place_x) - unsign(plan_.window_w)
                         : unsign(plan_.place_x);
}

bool Transformer::upright(const PixelView& in, int in_channels, const Picture& out) noexcept {
  const std::size_t window_width = unsign(plan_.window_w);
  const std::size_t window_height = unsign(plan_.window_h);
  if (window_width < out.width || window_height < out.height) fill_row(options_, out);
  const std::size_t left = left_of_window(out);
  if (!options_.planar && !options_.grey) {
    const auto channels = static_cast<std::size_t>(out.channels);
    return window(in, out.channels,
                  {out.row(unsign(plan_.place_y)) + left * channels, out.row_bytes()});
  }
  Picture target = out;
  target.data += options_.planar ? unsign(plan_.place_y) * out.width + left
                                 : unsign(plan_.place_y) * out.row_bytes() +
                                       left * static_cast<std::size_t>(out.channels);
  if (!options_.grey && !plan_.resamples()) {  // the window is what was read
    place(in, in_channels, target, plan_.flips_x());
    return true;
  }
  const std::size_t stride = window_width * static_cast<std::size_t>(in_channels);
  std::uint8_t* pixels = window_.reserve(window_height * stride);
  if (pixels == nullptr || !window(in, in_channels, {pixels, stride})) return false;
  place({pixels, stride}, in_channels, target, false);
  return true;
}

bool Transformer::window(const PixelView& in, int channels, const PixelTarget& out) noexcept {
  if (plan_.resamples()) {
    if (channels == 4 && options_.filter != Filter::nearest) return premultiplied(in, out);
    return resizer_.run(in, channels, out, simd_level());
  }
  if (plan_.flips_x()) {
    mirror_rows(channels, simd_level())(in, out, region_.width, region_.height);
  } else {
    copy_rows(in, out, region_.width * static_cast<std::size_t>(channels), region_.height);
  }
  return true;
}

bool Transformer::premultiplied(const PixelView& in, const PixelTarget& out) noexcept {
  const std::size_t stride = region_.width * 4;
  std::uint8_t* pixels = premultiplied_.reserve(region_.height * stride + Resizer::slack);
  if (pixels == nullptr) return false;
  for (std::size_t y = 0; y < region_.height; ++y) {
    premultiply_row(in.data + y * in.stride, pixels + y * stride, region_.width);
  }
  if (!resizer_.run({pixels, stride}, 4, out, simd_level())) return false;
  for (std::size_t y = 0; y < unsign(plan_.window_h); ++y) {
    unpremultiply_row(out.data + y * out.stride, unsign(plan_.window_w));
  }
  return true;
}

/// `out.data` is where the window's first pixel goes. Only pixels that keep their channels are
/// mirrored here.
void Transformer::place(const PixelView& in, int in_channels, const Picture& out,
                        bool mirrored) const noexcept {
  const std::size_t width = unsign(plan_.window_w);
  const auto read = static_cast<std::size_t>(in_channels);
  const auto channels = static_cast<std::size_t>(out.channels);
  const std::size_t plane = out.height * out.width;
  if (!options_.grey) {  // planar, or rows would have been written at once
    split_rows(in_channels, simd_level())(in, {out.data, out.width, plane}, width,
                                          unsign(plan_.window_h), mirrored);
    return;
  }
  for (std::size_t y = 0; y < unsign(plan_.window_h); ++y) {
    auto* row = const_cast<std::uint8_t*>(in.data) + y * in.stride;
    if (read == 3) rgb_to_grey(row, row, width);
    for (std::size_t c = 0; c < channels; ++c) {
      if (options_.planar) {
        std::memcpy(out.data + c * plane + y * out.width, row, width);
      } else {
        std::uint8_t* to = out.data + y * out.row_bytes() + c;
        for (std::size_t x = 0; x < width; ++x) to[x * channels] = row[x];
      }
    }
  }
}

namespace {

/// Asks for the first bytes of a value while the two before it are worked on: samples in
/// random order lie where the processor does not expect them.
void prefetch(Bytes value) noexcept {
  constexpr std::size_t most_bytes = 4096;
  constexpr std::size_t line_bytes = 64;
  for (std::size_t at = 0; at < std::min(value.size(), most_bytes); at += line_bytes) {
    __builtin_prefetch(value.data() + at);
  }
}

/// What pictures and raw pixels have in common: checksum, plan, row.
class TransformTask : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.decode"; }

  explicit TransformTask(TransformBatch batch) noexcept
      : batch_(std::move(batch)), options_(batch_.options) {
    if (changes_rows()) options_.planar = false;  // planes come after it
  }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      if (i + 2 < last) prefetch(batch_.spans[i + 2]);
      batch_.rows.status[i] = static_cast<std::int32_t>(transform(worker, i));
    }
  }

  [[nodiscard]] const TransformBatch& batch() const noexcept { return batch_; }

  [[nodiscard]] Status check(std::size_t i) const noexcept {
    const TransformedRows& rows = batch_.rows;
    const bool sound = rows.checksums == nullptr || crc32(batch_.spans[i]) == rows.checksums[i];
    return sound ? Status::ok : Status::bad_checksum;
  }

  /// Fills row i of a value that has been checked.
  [[nodiscard]] Status transform_checked(Worker& worker, std::size_t i) const noexcept {
    const Picture out = batch_.row(i);
    return changes_rows() ? change(worker, i, out) : fill(worker, i, out);
  }

 protected:
  [[nodiscard]] const TransformOptions& options() const noexcept { return options_; }
  [[nodiscard]] bool verify_data() const noexcept { return batch_.rows.checksums == nullptr; }

  /// By how much the value comes shrunk from its decoder.
  [[nodiscard]] virtual std::size_t shrink(Bytes value, const Plan& plan,
                                           const TransformOptions& options) const noexcept = 0;

  struct Sample {
    std::size_t number;  ///< of its row
    Bytes value;
    Intervals intervals;
    const Plan& plan;
    const TransformOptions& options;
  };

  /// Makes row `out` of one value; the worker's transformer has begun with the plan.
  [[nodiscard]] virtual Status transform(Worker& worker, const Sample& sample,
                                         const Picture& out) const noexcept = 0;

  /// The options, with what the canvas that the plan of picture i fills has of its own.
  [[nodiscard]] TransformOptions options_for(std::size_t i) const noexcept {
    if (!changes_rows()) return options_;
    const ColourProgram program = batch_.colours.of(i);
    return begins_with_canvas(program) ? with(canvas_of(program.steps[0])) : options_;
  }

  [[nodiscard]] Intervals intervals(std::size_t i) const noexcept {
    return batch_.intervals ? Intervals(batch_.intervals[i]) : Intervals();
  }

 private:
  [[nodiscard]] Status transform(Worker& worker, std::size_t i) const noexcept {
    const Status status = check(i);
    return status == Status::ok ? transform_checked(worker, i) : status;
  }

  /// Whether something is done to finished rows.
  [[nodiscard]] bool changes_rows() const noexcept { return batch_.colours.count > 0; }

  /// The row, and what its program changes in it.
  [[nodiscard]] Status change(Worker& worker, std::size_t i, const Picture& out) const noexcept {
    Picture picture = out;
    const bool planar = batch_.options.planar;
    if (planar) picture.data = worker.row.reserve(out.height * out.row_bytes());
    if (picture.data == nullptr) return Status::unsupported;  // no memory
    const ColourProgram program = batch_.colours.of(i);
    Status status = Status::ok;
    if (begins_with_canvas(program)) {
      status = through_canvases(worker, i, picture);
    } else {
      status = fill(worker, i, picture);
      if (status == Status::ok) status = worker.colourist.run(program, picture);
    }
    if (status == Status::ok && planar) split_channels(picture, out.data);
    return status;
  }

  /// The row, by a program with canvases: one plan after the other, each with the steps behind it;
  /// then it may be cut into patches.
  [[nodiscard]] Status through_canvases(Worker& worker, std::size_t i,
                                        const Picture& out) const noexcept {
    ColourProgram program = batch_.colours.of(i);
    const std::optional<Patches> patches = patches_of(program);
    if (patches) --program.count;
    Picture from{};
    std::size_t at = 0;  // the canvas
    for (std::size_t turn = 0;; ++turn) {
      const Canvas canvas = canvas_of(program.steps[at]);
      const std::size_t next = next_plan(program, at);
      Picture to = out;
      if (next < program.count || patches) {
        to.height = canvas.height;
        to.width = canvas.width;
        to.data = worker.canvases[turn % 2].reserve(to.height * to.row_bytes() + Resizer::slack);
        if (to.data == nullptr) return Status::unsupported;  // no memory
      }
      Status status = at == 0 ? fill(worker, i, to)
                              : render(worker, program.steps[at - 1], with(canvas), from, to);
      if (status == Status::ok) {
        status = worker.colourist.run({program.steps + at + 1, next - at - 1}, to);
      }
      if (status == Status::ok && next == program.count && patches) cut_patches(to, *patches, out);
      if (status != Status::ok || next == program.count) return status;
      from = to;
      at = next + 1;
    }
  }

  /// Fills a picture by a plan of another one, behind which Resizer::slack bytes are readable.
  [[nodiscard]] static Status render(Worker& worker, const ColourWork& work,
                                     const TransformOptions& options, const Picture& from,
                                     const Picture& to) noexcept {
    const Plan plan = plan_of(work);
    if (plan.is_empty()) {
      fill_row(options, to);
      return Status::ok;
    }
    TransformOptions own = options;
    own.grey = false;  // the picture is grey already
    if (!worker.transformer.begin(plan, own, 1)) return Status::unsupported;  // no memory
    const Region& region = worker.transformer.region();
    const std::size_t left = region.x * static_cast<std::size_t>(from.channels);
    const PixelView view{from.row(region.y) + left, from.row_bytes()};
    const bool done = worker.transformer.finish(view, from.channels, to);
    return done ? Status::ok : Status::unsupported;
  }

  [[nodiscard]] TransformOptions with(const Canvas& canvas) const noexcept {
    TransformOptions own = options_;
    own.filter = static_cast<Filter>(canvas.filter);
    for (std::size_t c = 0; c < own.fill.size(); ++c) {
      own.fill[c] = static_cast<std::uint8_t>(canvas.fill[c]);
    }
    return own;
  }

  [[nodiscard]] Status fill(Worker& worker, std::size_t i, const Picture& out) const noexcept {
    const Bytes value = batch_.spans[i];
    const Plan& plan = batch_.plans[i];
    const TransformOptions own = options_for(i);
    if (plan.is_empty()) {
      fill_row(own, out);
      return Status::ok;
    }
    const bool begun = worker.transformer.begin(plan, own, shrink(value, plan, own));
    if (!begun) return Status::unsupported;  // no memory
    return transform(worker, {i, value, intervals(i), plan, own}, out);
  }

  const TransformBatch batch_;
  TransformOptions options_;  // those of the batch, but for the layout where a program follows
};

class PictureTask : public TransformTask {
 public:
  using TransformTask::TransformTask;

 protected:
  [[nodiscard]] std::size_t shrink(Bytes file, const Plan& plan,
                                   const TransformOptions& options) const noexcept override {
    return image_kind(file) == ImageKind::jpeg ? shrink_of(plan, options) : 1;
  }

  [[nodiscard]] Status transform(Worker& worker, const Sample& sample,
                                 const Picture& out) const noexcept override {
    PixelView pixels{};
    const Status status = decode(worker, sample, worker.transformer.region(), pixels);
    if (status != Status::ok) return status;
    const bool done = worker.transformer.finish(pixels, channels(), out);
    return done ? Status::ok : Status::unsupported;
  }

  /// How many channels pictures are decoded to.
  [[nodiscard]] int channels() const noexcept {
    return options().grey ? 3 : batch().rows.first.channels;
  }

  [[nodiscard]] Status decode(Worker& worker, const Sample& sample, const Region& region,
                              PixelView& pixels, const PixelTarget& target = {}) const noexcept {
    const PicturePart part{box_of(sample.plan),
                           region,
                           channels(),
                           shrink(sample.value, sample.plan, sample.options),
                           sample.intervals,
                           target,
                           sample.options.max_pixels};
    return or_pillow(decode_part(worker, sample.value, part, verify_data(), pixels));
  }
};

/// Pictures whose rows are decoded in bands, by several threads: sample i is the items
/// [i * bands, (i + 1) * bands). Who finishes its last band does what follows.
class BandedTask final : public PictureTask {
 public:
  BandedTask(TransformBatch batch, std::size_t count, std::size_t bands) noexcept
      : PictureTask(std::move(batch)), bands_(bands), shared_(new(std::nothrow) Shared[count]) {
    for (std::size_t i = 0; shared_ && i < count; ++i) prepare(i);
  }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t item = first; item < last; ++item) {
      run_band(worker, item / bands_, item % bands_);
    }
  }

 private:
  struct Shared {
    Region region{};
    Scratch memory;
    PixelTarget rows{};  ///< of the region, with room beside it; nullptr: one thread does all of it
    std::atomic<std::size_t> left{0};  ///< bytes of a row before the region's first pixel
    std::atomic<std::size_t> done{0};
    std::array<Status, most_bands> status{};
  };

  /// Makes room for a large picture of which it is known where decoding may start.
  void prepare(std::size_t i) noexcept {
    constexpr std::size_t worth_it = std::size_t{1} << 20;  // pixels
    const Plan& plan = batch().plans[i];
    const Bytes file = batch().spans[i];
    if (plan.is_empty() || intervals(i).bytes().empty()) return;
    Transformer transformer;
    const TransformOptions own = options_for(i);
    if (!transformer.begin(plan, own, shrink(file, plan, own))) return;
    Shared& shared = shared_[i];
    shared.region = transformer.region();
    const std::size_t pixels = shared.region.width * shared.region.height;
    if (pixels < worth_it || pixels > file.size() * 64) return;
    constexpr std::size_t beside =
        2 * 64;  // MCUs that are cut, and what smooth upsampling looks at
    const std::size_t stride = (shared.region.width + beside) * pixel_bytes();
    const std::size_t size = shared.region.height * stride + Resizer::slack;
    shared.rows = {shared.memory.reserve(size), stride};
    if (shared.rows.data != nullptr) ask_for_large_pages(shared.rows.data, size);
  }

  /// Fresh memory of 36 MB is 9,000 page faults otherwise.
  static void ask_for_large_pages(std::uint8_t* memory, std::size_t size) noexcept {
    constexpr std::uintptr_t page = 4096;
    const auto start = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t aligned = (start + page - 1) / page * page;
    platform::ask_for_large_pages(reinterpret_cast<void*>(aligned), size - (aligned - start));
  }

  void run_band(Worker& worker, std::size_t i, std::size_t band) noexcept {
    std::int32_t& out = batch().rows.status[i];
    if (!shared_ || shared_[i].rows.data == nullptr) {
      if (band > 0) return;
      const Status checked = check(i);
      out =
          static_cast<std::int32_t>(checked == Status::ok ? transform_checked(worker, i) : checked);
      return;
    }
    Shared& shared = shared_[i];
    shared.status[band] = band == 0 ? check(i) : Status::ok;
    if (shared.status[band] == Status::ok) shared.status[band] = decode_band(worker, i, band);
    if (shared.done.fetch_add(1, std::memory_order_acq_rel) + 1 < bands_) return;
    const auto* const bad = std::find_if(shared.status.begin(), shared.status.begin() + bands_,
                                         [](Status s) { return s != Status::ok; });
    const bool is_sound = bad == shared.status.begin() + bands_;
    out = static_cast<std::int32_t>(is_sound ? transform_checked(worker, i) : *bad);
  }

  [[nodiscard]] Status decode_band(Worker& worker, std::size_t i, std::size_t band) noexcept {
    Shared& shared = shared_[i];
    const std::size_t start = shared.region.height * band / bands_;
    const std::size_t stop = shared.region.height * (band + 1) / bands_;
    Region rows = shared.region;
    rows.y += start;
    rows.height = stop - start;
    PixelView pixels{};
    const TransformOptions own = options_for(i);
    const Sample sample{i, batch().spans[i], intervals(i), batch().plans[i], own};
    const PixelTarget target{shared.rows.data + start * shared.rows.stride, shared.rows.stride};
    const Status status = decode(worker, sample, rows, pixels, target);
    if (status != Status::ok) return status;
    const bool is_placed = pixels.stride == target.stride && pixels.data >= target.data &&
                           pixels.data < target.data + target.stride;
    if (is_placed) {  // equally far to the right in all bands
      shared.left.store(static_cast<std::size_t>(pixels.data - target.data),
                        std::memory_order_relaxed);
      return Status::ok;
    }
    for (std::size_t y = 0; y < rows.height; ++y) {
      std::memcpy(target.data + y * target.stride, pixels.data + y * pixels.stride,
                  rows.width * pixel_bytes());
    }
    return Status::ok;
  }

  [[nodiscard]] Status transform(Worker& worker, const Sample& sample,
                                 const Picture& out) const noexcept override {
    const Shared* shared = shared_ ? &shared_[sample.number] : nullptr;
    if (shared == nullptr || shared->rows.data == nullptr) {
      return PictureTask::transform(worker, sample, out);
    }
    const PixelView pixels{shared->rows.data + shared->left.load(std::memory_order_relaxed),
                           shared->rows.stride};
    const bool done = worker.transformer.finish(pixels, channels(), out);
    return done ? Status::ok : Status::unsupported;
  }

  [[nodiscard]] std::size_t pixel_bytes() const noexcept {
    return static_cast<std::size_t>(channels());
  }

  const std::size_t bands_;
  const std::unique_ptr<Shared[]> shared_;  // nullptr: no memory, one thread a picture
};

/// One view of pictures, whose pixels the worker has decoded.
class ViewTask final : public PictureTask {
 public:
  using PictureTask::channels;
  using PictureTask::intervals;
  using PictureTask::options_for;
  using PictureTask::PictureTask;

 private:
  [[nodiscard]] Status transform(Worker& worker, const Sample&,
                                 const Picture& out) const noexcept override {
    const auto& [part, pixels] = worker.decoded;
    const Region& region = worker.transformer.region();
    const std::size_t left = (region.x - part.x) * static_cast<std::size_t>(channels());
    const PixelView view{pixels.data + (region.y - part.y) * pixels.stride + left, pixels.stride};
    const bool done = worker.transformer.finish(view, channels(), out);
    return done ? Status::ok : Status::unsupported;
  }
};

/// The smallest region that has both; one without pixels has none.
Region united(const Region& one, const Region& other) noexcept {
  if (one.width == 0) return other;
  const std::size_t x = std::min(one.x, other.x), y = std::min(one.y, other.y);
  return {x, y, std::max(one.x + one.width, other.x + other.width) - x,
          std::max(one.y + one.height, other.y + other.height) - y};
}

/// What a plan reads of its picture: no more, for behind it damage does not matter.
Region read_by(Transformer& transformer, const Plan& plan,
               const TransformOptions& options) noexcept {
  const bool is_whole = plan.window_w == plan.virtual_w && plan.window_h == plan.virtual_h;
  const bool is_known = plan.resamples() && is_whole && options.filter != Filter::nearest;
  return !is_known && transformer.begin(plan, options, 1) ? transformer.region() : box_of(plan);
}

/// Several tasks of the same values, whose rows are filled one after the other.
template <typename View>
class ViewsTask : public Task {
 public:
  explicit ViewsTask(std::vector<std::unique_ptr<View>> views) noexcept
      : views_(std::move(views)) {}

  [[nodiscard]] const char* what() const noexcept override { return "fastio.decode"; }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    const TransformBatch& batch = views_.front()->batch();
    for (std::size_t i = first; i < last; ++i) {
      if (i + 2 < last) prefetch(batch.spans[i + 2]);
      const Status status = views_.front()->check(i);
      batch.rows.status[i] = static_cast<std::int32_t>(status == Status::ok ? fill(worker, i)  //
                                                                            : status);
    }
  }

 protected:
  [[nodiscard]] const std::vector<std::unique_ptr<View>>& views() const noexcept { return views_; }

  /// Fills all rows of a value that has been checked.
  [[nodiscard]] virtual Status fill(Worker& worker, std::size_t i) const noexcept {
    for (const auto& view : views_) {
      const Status status = view->transform_checked(worker, i);
      if (status != Status::ok) return status;
    }
    return Status::ok;
  }

 private:
  const std::vector<std::unique_ptr<View>> views_;
};

/// Views of pictures: decoded once for those that take equally many channels.
class PictureViewsTask final : public ViewsTask<ViewTask> {
 public:
  using ViewsTask<ViewTask>::ViewsTask;

 private:
  [[nodiscard]] Status fill(Worker& worker, std::size_t i) const noexcept override {
    for (const int channels : {1, 3, 4}) {
      Status status = decode(worker, i, channels);
      for (const auto& view : views()) {
        if (status == Status::ok && view->channels() == channels) {
          status = view->transform_checked(worker, i);
        }
      }
      if (status != Status::ok) return status;
    }
    return Status::ok;
  }

  /// Decodes what the views with so many channels need.
  [[nodiscard]] Status decode(Worker& worker, std::size_t i, int channels) const noexcept {
    Region box{}, region{};
    for (const auto& view : views()) {
      const Plan& plan = view->batch().plans[i];
      if (view->channels() != channels || plan.is_empty()) continue;
      box = united(box, box_of(plan));
      region = united(region, read_by(worker.transformer, plan, view->options_for(i)));
    }
    if (region.width == 0) return Status::ok;
    const ViewTask& any = *views().front();
    const TransformBatch& batch = any.batch();
    const PicturePart part{
        box, region, channels, 1, any.intervals(i), {}, batch.options.max_pixels};
    worker.decoded.region = region;
    const bool verify_data = batch.rows.checksums == nullptr;
    return or_pillow(decode_part(worker, batch.spans[i], part, verify_data, worker.decoded.pixels));
  }
};

class RawTask final : public TransformTask {
 public:
  RawTask(TransformBatch batch, const RawPixels& stored) noexcept
      : TransformTask(std::move(batch)), stored_(stored) {}

 private:
  [[nodiscard]] std::size_t shrink(Bytes, const Plan&,
                                   const TransformOptions&) const noexcept override {
    return 1;
  }

  [[nodiscard]] Status transform(Worker& worker, const Sample& sample,
                                 const Picture& out) const noexcept override {
    const auto& [number, value, intervals, plan, own] = sample;
    const std::size_t width = stored_.width;
    if (!box_of(plan).is_inside(width, stored_.height)) return Status::bad_shape;
    const int channels = channels_of(value, out.channels);
    if (channels == 0) return Status::bad_shape;
    const Region& region = worker.transformer.region();
    const std::size_t pixel_bytes = static_cast<std::size_t>(channels);
    const bool planar = stored_.planar && channels > 1;
    const std::size_t first = region.y * width + region.x;
    const PlanesView planes{value.data() + first, width, stored_.height * width};
    if (planar && own.planar && !own.grey && !plan.resamples()) {
      worker.transformer.finish_planes(planes, out);
      return Status::ok;
    }
    PixelView pixels{value.data() + first * pixel_bytes, width * pixel_bytes};
    if (planar || plan.resamples()) {  // which reads beyond the last pixel, in memory of our own
      const std::size_t row_bytes = region.width * pixel_bytes;
      std::uint8_t* copy = worker.picture.reserve(region.height * row_bytes + Resizer::slack);
      if (copy == nullptr) return Status::unsupported;
      if (planar) {
        join_rows(channels, simd_level())(planes, {copy, row_bytes}, region.width, region.height);
      } else {
        copy_rows(pixels, {copy, row_bytes}, row_bytes, region.height);
      }
      pixels = {copy, row_bytes};
    }
    return worker.transformer.finish(pixels, channels, out) ? Status::ok : Status::unsupported;
  }

  /// 0 where the value has another size than it should.
  [[nodiscard]] int channels_of(Bytes value, int out_channels) const noexcept {
    const std::size_t plane = stored_.height * stored_.width;
    if (!options().grey) {
      return value.size() == plane * static_cast<std::size_t>(out_channels) ? out_channels : 0;
    }
    if (value.size() == plane) return 1;
    return value.size() == 3 * plane ? 3 : 0;
  }

  const RawPixels stored_;
};

/// Finished pictures, in memory of the caller's.
class ColourTask final : public Task {
 public:
  explicit ColourTask(ColouredRows rows) noexcept : rows_(std::move(rows)) {}

  [[nodiscard]] const char* what() const noexcept override { return "fastio.colours"; }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      rows_.status[i] = static_cast<std::int32_t>(run_one(worker, i));
    }
  }

 private:
  [[nodiscard]] Status run_one(Worker& worker, std::size_t i) const noexcept {
    const std::size_t steps = rows_.colours.count;
    const ColourProgram program{rows_.colours.steps.get() + i * steps, steps};
    Picture picture = rows_.first;
    const std::size_t size = picture.height * picture.row_bytes();
    std::uint8_t* const own = picture.data + i * size;
    picture.data = own;
    if (!rows_.planar || picture.channels == 1) return worker.colourist.run(program, picture);
    picture.data = worker.row.reserve(size);
    if (picture.data == nullptr) return Status::unsupported;
    join_channels(own, picture);
    const Status status = worker.colourist.run(program, picture);
    if (status == Status::ok) split_channels(picture, own);
    return status;
  }

  const ColouredRows rows_;
};

}  // namespace

std::unique_ptr<Task> transform_task(TransformBatch batch) noexcept {
  return std::make_unique<PictureTask>(std::move(batch));
}

std::size_t bands_for(const TransformBatch& batch, std::size_t count,
                      std::size_t threads) noexcept {
  if (count == 0 || threads <= count || !batch.intervals) return 1;
  // Two for each thread: they end together although some rows take longer, or a thread must wait.
  return std::min(2 * ((threads + count - 1) / count), most_bands);
}

std::unique_ptr<Task> banded_transform_task(TransformBatch batch, std::size_t count,
                                            std::size_t bands) noexcept {
  return std::make_unique<BandedTask>(std::move(batch), count, bands);
}

std::unique_ptr<Task> colour_task(ColouredRows rows) noexcept {
  return std::make_unique<ColourTask>(std::move(rows));
}

std::unique_ptr<Task> transform_raw_task(TransformBatch batch, const RawPixels& stored) noexcept {
  return std::make_unique<RawTask>(std::move(batch), stored);
}

std::unique_ptr<Task> views_task(std::vector<TransformBatch> views) noexcept {
  std::vector<std::unique_ptr<ViewTask>> tasks;
  for (TransformBatch& view : views) tasks.push_back(std::make_unique<ViewTask>(std::move(view)));
  return std::make_unique<PictureViewsTask>(std::move(tasks));
}

std::unique_ptr<Task> raw_views_task(std::vector<TransformBatch> views,
                                     const RawPixels& stored) noexcept {
  std::vector<std::unique_ptr<RawTask>> tasks;
  for (TransformBatch& view : views) {
    tasks.push_back(std::make_unique<RawTask>(std::move(view), stored));
  }
  return std::make_unique<ViewsTask<RawTask>>(std::move(tasks));
}

}  // namespace fastio
