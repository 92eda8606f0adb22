#include "transform/rows.h"

#include <utility>

#include "core/checksum.h"

namespace fastio {
namespace {

template <std::size_t channels>
void scalar_mirror(const PixelView& in, const PixelTarget& out, std::size_t pixels,
                   std::size_t rows) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    mirror_pixels<channels>(in.data + y * in.stride, out.data + y * out.stride, pixels);
  }
}

}  // namespace

MirrorRows mirror_rows(int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41) {
    return channels == 1 ? sse41_mirror1 : channels == 3 ? sse41_mirror3 : sse41_mirror4;
  }
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon) {
    return channels == 1 ? neon_mirror1 : channels == 3 ? neon_mirror3 : neon_mirror4;
  }
#else
  (void)level;
#endif
  return channels == 1 ? scalar_mirror<1> : channels == 3 ? scalar_mirror<3> : scalar_mirror<4>;
}

namespace {

template <std::size_t channels>
void scalar_split(const PixelView& in, const PlanesTarget& out, std::size_t pixels,
                  std::size_t rows, bool mirrored) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    split_pixels<channels>(in.data + y * in.stride, out.data + y * out.stride, out.plane, pixels,
                           mirrored);
  }
}

}  // namespace

SplitRows split_rows(int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41 && channels > 1) {
    return channels == 3 ? sse41_split3 : sse41_split4;
  }
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon && channels > 1) {
    return channels == 3 ? neon_split3 : neon_split4;
  }
#else
  (void)level;
#endif
  return channels == 1 ? scalar_split<1> : channels == 3 ? scalar_split<3> : scalar_split<4>;
}

namespace {

template <std::size_t channels>
void scalar_join(const PlanesView& in, const PixelTarget& out, std::size_t pixels,
                 std::size_t rows) noexcept {
  for (std::size_t y = 0; y < rows; ++y) {
    join_pixels<channels>(in.data + y * in.stride, in.plane, out.data + y * out.stride, 0, pixels);
  }
}

class JoinTask final : public Task {
 public:
  JoinTask(std::unique_ptr<Bytes[]> spans, const Rows& rows, int channels) noexcept
      : spans_(std::move(spans)),
        rows_(rows),
        plane_(rows.row_bytes / static_cast<std::size_t>(channels)),
        join_(join_rows(channels, simd_level())) {}

  [[nodiscard]] const char* what() const noexcept override { return "fastio.join"; }

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      rows_.status[i] = static_cast<std::int32_t>(join(i));
    }
  }

 private:
  [[nodiscard]] Status join(std::size_t i) const noexcept {
    const Bytes span = spans_[i];
    if (span.size() != rows_.row_bytes) return Status::bad_shape;
    if (rows_.checksums != nullptr && crc32(span) != rows_.checksums[i]) {
      return Status::bad_checksum;
    }
    join_({span.data(), 0, plane_}, {rows_.out + i * rows_.row_bytes, 0}, plane_, 1);
    return Status::ok;
  }

  const std::unique_ptr<Bytes[]> spans_;
  const Rows rows_;
  const std::size_t plane_;
  const JoinRows join_;
};

}  // namespace

JoinRows join_rows(int channels, SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= SimdLevel::sse41 && channels > 1) {
    return channels == 3 ? sse41_join3 : sse41_join4;
  }
#elif defined(__aarch64__)
  if (level >= SimdLevel::neon && channels > 1) {
    return channels == 3 ? neon_join3 : neon_join4;
  }
#else
  (void)level;
#endif
  return channels == 1 ? scalar_join<1> : channels == 3 ? scalar_join<3> : scalar_join<4>;
}

std::unique_ptr<Task> join_task(std::unique_ptr<Bytes[]> spans, const Rows& rows,
                                int channels) noexcept {
  return std::make_unique<JoinTask>(std::move(spans), rows, channels);
}

}  // namespace fastio
