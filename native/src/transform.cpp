#include "fastio/transform.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fastio/crc32.h"
#include "fastio/decode.h"
#include "fastio/probe.h"
#include "fastio/worker.h"

namespace fastio {
namespace {

/// What pictures and raw pixels have in common: checksum, plan, row.
class TransformTask : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.decode"; }

  explicit TransformTask(TransformBatch batch) noexcept
      : batch_(std::move(batch)), options_(batch_.options) {
    if (batch_.function.call != nullptr) options_.planar = false;  // planes come after it
  }

  void run(Worker& worker, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      if (i + 2 < last) prefetch(batch_.spans[i + 2]);
      batch_.rows.status[i] = static_cast<std::int32_t>(transform(worker, i));
    }
  }

 protected:
  [[nodiscard]] const TransformOptions& options() const noexcept { return options_; }
  [[nodiscard]] bool verify_data() const noexcept { return batch_.rows.checksums == nullptr; }

  /// By how much the value comes shrunk from its decoder.
  [[nodiscard]] virtual std::size_t shrink(Bytes value, const Plan& plan) const noexcept = 0;

  struct Sample {
    Bytes value;
    Intervals intervals;
    const Plan& plan;
  };

  /// Makes row `out` of one value; the worker's transformer has begun with the plan.
  [[nodiscard]] virtual Status transform(Worker& worker, const Sample& sample,
                                         const Picture& out) const noexcept = 0;

 private:
  /// Asks for the first bytes of a value while the two before it are worked on: samples in
  /// random order lie where the processor does not expect them.
  static void prefetch(Bytes value) noexcept {
    constexpr std::size_t most_bytes = 4096;
    constexpr std::size_t line_bytes = 64;
    for (std::size_t at = 0; at < std::min(value.size(), most_bytes); at += line_bytes) {
      __builtin_prefetch(value.data() + at);
    }
  }

  [[nodiscard]] Status transform(Worker& worker, std::size_t i) const noexcept {
    const TransformedRows& rows = batch_.rows;
    const Bytes value = batch_.spans[i];
    if (rows.checksums != nullptr && crc32(value) != rows.checksums[i]) {
      return Status::bad_checksum;
    }
    Picture out = rows.first;
    out.data += i * out.height * out.row_bytes();
    return batch_.function.call == nullptr ? fill(worker, i, out) : call(worker, i, out);
  }

  /// The row, and the user's function on it.
  [[nodiscard]] Status call(Worker& worker, std::size_t i, const Picture& out) const noexcept {
    const PictureFunction& function = batch_.function;
    Picture picture = out;
    const bool planar = batch_.options.planar;
    if (planar) picture.data = worker.row.reserve(out.height * out.row_bytes());
    if (picture.data == nullptr) return Status::unsupported;  // no memory
    const Status status = fill(worker, i, picture);
    if (status != Status::ok) return status;
    const std::int32_t failed = function.call(picture.data, static_cast<std::int64_t>(out.height),
                                              static_cast<std::int64_t>(out.width), out.channels,
                                              function.numbers + i * function.count,
                                              static_cast<std::int64_t>(function.count));
    if (failed != 0) return Status::failed;
    if (planar) split_channels(picture, out.data);
    return Status::ok;
  }

  [[nodiscard]] Status fill(Worker& worker, std::size_t i, const Picture& out) const noexcept {
    const Bytes value = batch_.spans[i];
    const Plan& plan = batch_.plans[i];
    if (plan.is_empty()) {
      fill_row(options(), out);
      return Status::ok;
    }
    const bool begun = worker.transformer.begin(plan, options(), shrink(value, plan));
    if (!begun) return Status::unsupported;  // no memory
    const Intervals intervals = batch_.intervals ? Intervals(batch_.intervals[i]) : Intervals();
    return transform(worker, {value, intervals, plan}, out);
  }

  const TransformBatch batch_;
  TransformOptions options_;  // those of the batch, but for the layout where a function follows
};

class PictureTask final : public TransformTask {
 public:
  using TransformTask::TransformTask;

 private:
  [[nodiscard]] std::size_t shrink(Bytes file, const Plan& plan) const noexcept override {
    return image_kind(file) == ImageKind::jpeg ? shrink_of(plan, options()) : 1;
  }

  [[nodiscard]] Status transform(Worker& worker, const Sample& sample,
                                 const Picture& out) const noexcept override {
    const PicturePart part{box_of(sample.plan),
                           worker.transformer.region(),
                           options().grey ? 3 : out.channels,
                           shrink(sample.value, sample.plan),
                           sample.intervals,
                           options().max_pixels};
    PixelView pixels{};
    const Status status = or_pillow(decode_part(worker, sample.value, part, verify_data(), pixels));
    if (status != Status::ok) return status;
    return worker.transformer.finish(pixels, part.channels, out) ? Status::ok : Status::unsupported;
  }
};

class RawTask final : public TransformTask {
 public:
  RawTask(TransformBatch batch, std::size_t height, std::size_t width) noexcept
      : TransformTask(std::move(batch)), height_(height), width_(width) {}

 private:
  [[nodiscard]] std::size_t shrink(Bytes, const Plan&) const noexcept override { return 1; }

  [[nodiscard]] Status transform(Worker& worker, const Sample& sample,
                                 const Picture& out) const noexcept override {
    const auto& [value, intervals, plan] = sample;
    if (!box_of(plan).is_inside(width_, height_)) return Status::bad_shape;
    const int channels = channels_of(value, out.channels);
    if (channels == 0) return Status::bad_shape;
    const Region& region = worker.transformer.region();
    const std::size_t pixel_bytes = static_cast<std::size_t>(channels);
    const std::size_t stride = width_ * pixel_bytes;
    PixelView pixels{value.data() + region.y * stride + region.x * pixel_bytes, stride};
    if (plan.resamples()) {  // reads beyond the last pixel, which only memory of our own allows
      const std::size_t row_bytes = region.width * pixel_bytes;
      std::uint8_t* copy = worker.picture.reserve(region.height * row_bytes + Resizer::slack);
      if (copy == nullptr) return Status::unsupported;
      for (std::size_t y = 0; y < region.height; ++y) {
        std::memcpy(copy + y * row_bytes, pixels.data + y * stride, row_bytes);
      }
      pixels = {copy, row_bytes};
    }
    return worker.transformer.finish(pixels, channels, out) ? Status::ok : Status::unsupported;
  }

  /// 0 where the value has another size than it should.
  [[nodiscard]] int channels_of(Bytes value, int out_channels) const noexcept {
    const std::size_t plane = height_ * width_;
    if (!options().grey) {
      return value.size() == plane * static_cast<std::size_t>(out_channels) ? out_channels : 0;
    }
    if (value.size() == plane) return 1;
    return value.size() == 3 * plane ? 3 : 0;
  }

  const std::size_t height_;
  const std::size_t width_;
};

}  // namespace

std::unique_ptr<Task> transform_task(TransformBatch batch) noexcept {
  return std::make_unique<PictureTask>(std::move(batch));
}

std::unique_ptr<Task> transform_raw_task(TransformBatch batch, std::size_t height,
                                         std::size_t width) noexcept {
  return std::make_unique<RawTask>(std::move(batch), height, width);
}

}  // namespace fastio
