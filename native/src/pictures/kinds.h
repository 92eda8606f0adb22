/// The kinds of pictures: how each is recognised, measured and decoded.
///
/// A kind is one file, which defines its PictureKind, and one row of FASTIO_PICTURE_KINDS. Whatever
/// it lacks is Pillow's work. Kinds that native code knows only by their first bytes are rows in
/// Python (fastio.types.picture_kinds), which adds them by `add_kind`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "pictures/pixels.h"
#include "transform/plan.h"

/// One row a kind, in the order of their numbers: `<name>_kind` is its PictureKind.
#define FASTIO_PICTURE_KINDS(ROW) \
  ROW(jpeg)                       \
  ROW(png)                        \
  ROW(gif)                        \
  ROW(bmp)                        \
  ROW(webp)                       \
  ROW(tiff)                       \
  ROW(pnm)

namespace fastio {

/// The numbers are part of the Python interface; those added at run time follow.
enum class ImageKind : std::int32_t {
  unknown = 0,
#define FASTIO_KIND_NUMBER(name) name,
  FASTIO_PICTURE_KINDS(FASTIO_KIND_NUMBER)
#undef FASTIO_KIND_NUMBER
};

/// Bytes that are enough to tell every native kind.
inline constexpr std::size_t signature_bytes = 12;

/// What a header says, before it is judged. `unsupported`: that Pillow reads it.
struct Size {
  Status status;
  std::int64_t height;
  std::int64_t width;
  std::int32_t channels;
};
inline constexpr Size truncated_size{Status::truncated, 0, 0, 0};
inline constexpr Size corrupt_size{Status::corrupt, 0, 0, 0};

/// Decodes one file after another, any region of each. Not thread-safe: one per thread.
class RegionDecoder {
 public:
  RegionDecoder() = default;
  RegionDecoder(const RegionDecoder&) = delete;
  RegionDecoder& operator=(const RegionDecoder&) = delete;
  virtual ~RegionDecoder() = default;

  /// Reads the header of a file, whose bytes must stay until the last call of `decode`.
  /// `unsupported` leaves the file to Pillow.
  [[nodiscard]] virtual Status open(Bytes file) noexcept = 0;

  [[nodiscard]] virtual std::size_t width() const noexcept = 0;
  [[nodiscard]] virtual std::size_t height() const noexcept = 0;

  /// Writes a region of the opened file to `out`, which has its size: pixels as Pillow's
  /// convert("L"), ("RGB") or ("RGBA"). `bad_shape` where the region leaves the picture.
  [[nodiscard]] virtual Status decode(const Region& region, const Picture& out) noexcept = 0;
};

/// One kind. Functions but `matches` get files of this kind, and trust nothing behind what
/// `matches` looked at.
struct PictureKind {
  const char* name;
  const char* extensions;  ///< of its files, lower case, that of new files first: "tif tiff"
  bool (*matches)(Bytes file) noexcept;
  Size (*probe)(Bytes file) noexcept;  ///< by the header alone
  /// Whether the file may end before its pixels do, see `may_break_off`. nullptr: nothing tells.
  bool (*breaks_off)(Bytes file) noexcept;
  /// nullptr: Pillow decodes. JPEG and PNG, which do more than regions, are members of Worker.
  std::unique_ptr<RegionDecoder> (*make_decoder)();
};

#define FASTIO_DECLARE_KIND(name) extern const PictureKind name##_kind;
FASTIO_PICTURE_KINDS(FASTIO_DECLARE_KIND)
#undef FASTIO_DECLARE_KIND

/// All native kinds; row i has the number i + 1.
[[nodiscard]] std::span<const PictureKind* const> native_kinds() noexcept;

/// The row of a native kind; nullptr for unknown ones and for those added.
[[nodiscard]] const PictureKind* native_kind(ImageKind kind) noexcept;

/// The version of libwebp, as in "1.2.4"; nullptr in a build without it.
[[nodiscard]] const char* webp_version() noexcept;

/// Bytes that files of a kind have at some place.
struct Signature {
  static constexpr std::size_t most_bytes = 16;
  std::size_t place = 0;
  std::size_t size = 0;
  std::uint8_t bytes[most_bytes]{};
};

/// Lets image_kind recognise files with one of these signatures, where no earlier kind does; probe
/// and decoders leave them to Pillow. Returns the number of the new kind, or `unknown` when there
/// are too many. Kinds stay until the process ends. Not at the same time in two threads; threads
/// that ask for kinds meanwhile are safe.
ImageKind add_kind(std::span<const Signature> signatures) noexcept;

/// The kind of a file by its first bytes.
[[nodiscard]] ImageKind image_kind(Bytes file) noexcept;

/// The decoders of one thread, each made when first needed.
class RegionDecoders {
 public:
  RegionDecoders() : decoders_(native_kinds().size()) {}

  /// That of a kind; nullptr where Pillow decodes.
  [[nodiscard]] RegionDecoder* of(ImageKind kind) noexcept;

 private:
  std::vector<std::unique_ptr<RegionDecoder>> decoders_;
};

/// Numbers at places of a file, in either byte order. The caller has checked the size.
class Reader {
 public:
  Reader(Bytes file, bool little) noexcept : file_(file), little_(little) {}

  [[nodiscard]] bool has(std::size_t at, std::size_t size) const noexcept {
    return at <= file_.size() && size <= file_.size() - at;
  }
  [[nodiscard]] std::uint32_t u8(std::size_t at) const noexcept { return file_[at]; }
  [[nodiscard]] std::uint32_t u16(std::size_t at) const noexcept {
    return little_ ? u8(at) | u8(at + 1) << 8 : u8(at) << 8 | u8(at + 1);
  }
  [[nodiscard]] std::uint32_t u24(std::size_t at) const noexcept {
    return u16(at) | u8(at + 2) << 16;  // little endian only
  }
  [[nodiscard]] std::uint32_t u32(std::size_t at) const noexcept {
    return little_ ? u16(at) | u16(at + 2) << 16 : u16(at) << 16 | u16(at + 2);
  }

 private:
  const Bytes file_;
  const bool little_;
};

/// Whether `file` has `text`, without its closing zero, at a place.
template <std::size_t size>
[[nodiscard]] bool has_text(Bytes file, std::size_t at, const char (&text)[size]) noexcept {
  return file.size() >= at + size - 1 && std::memcmp(file.data() + at, text, size - 1) == 0;
}

}  // namespace fastio
