#include "png/chunks.h"

#include <algorithm>
#include <cstring>

#include "core/checksum.h"

namespace fastio {
namespace {

constexpr std::array<std::uint8_t, 8> signature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::size_t chunk_overhead = 12;  // length, type, CRC
constexpr std::size_t header_bytes = 13;
constexpr std::uint32_t largest = 0x7FFFFFFF;

std::uint32_t read_u32(const std::uint8_t* from) noexcept {
  return std::uint32_t{from[0]} << 24 | std::uint32_t{from[1]} << 16 | std::uint32_t{from[2]} << 8 |
         from[3];
}

constexpr std::uint32_t name(const char (&text)[5]) noexcept {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(text[i]);
  return value;
}

bool is_allowed(int depth, int color) noexcept {
  switch (color) {
    case 0: return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    case 3: return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    case 2:
    case 4:
    case 6: return depth == 8 || depth == 16;
    default: return false;
  }
}

/// The payload of IHDR.
Status read_header(const std::uint8_t* data, PngHeader& header) noexcept {
  header.width = read_u32(data);
  header.height = read_u32(data + 4);
  const bool sizes_good =
      header.width > 0 && header.height > 0 && header.width <= largest && header.height <= largest;
  if (!sizes_good || !is_allowed(data[8], data[9])) return Status::corrupt;
  if (data[10] != 0 || data[11] != 0 || data[12] > 1) return Status::corrupt;
  header.depth = data[8];
  header.color = static_cast<PngColor>(data[9]);
  header.interlaced = data[12] == 1;
  return Status::ok;
}

/// One chunk as it stands in the file.
struct Chunk {
  std::uint32_t type = 0;
  Bytes payload;
  Bytes checked;  ///< what the CRC covers: type and payload
  std::uint32_t crc = 0;

  [[nodiscard]] bool is_intact() const noexcept { return crc32(checked) == crc; }
};

/// Takes the next chunk off `rest`.
Status next_chunk(Bytes& rest, Chunk& chunk) noexcept {
  if (rest.size() < chunk_overhead) return Status::truncated;
  const std::uint32_t length = read_u32(rest.data());
  if (length > largest) return Status::corrupt;
  if (length > rest.size() - chunk_overhead) return Status::truncated;
  chunk.type = read_u32(rest.data() + 4);
  chunk.payload = rest.subspan(8, length);
  chunk.checked = rest.subspan(4, 4 + std::size_t{length});
  chunk.crc = read_u32(rest.data() + 8 + length);
  rest = rest.subspan(chunk_overhead + length);
  return Status::ok;
}

/// Whether the next chunk, which may break off, is one of pixels.
bool begins_data(Bytes rest) noexcept {
  return rest.size() >= 8 && read_u32(rest.data() + 4) == name("IDAT");
}

/// Walks the chunks behind IHDR, one `take` each.
class ChunkReader {
 public:
  explicit ChunkReader(PngChunks& chunks) noexcept : chunks_(chunks) {}

  Status take(std::uint32_t type, Bytes payload) noexcept {
    const bool is_data = type == name("IDAT");
    if (seen_data_ && !is_data) data_ended_ = true;
    if (is_data) return take_data(payload);
    if (type == name("PLTE")) return take_palette(payload);
    if (type == name("tRNS")) return take_transparency(payload);
    if (type == name("IHDR")) return Status::corrupt;
    // An animation's first frame, and what is critical and unknown, are Pillow's to judge.
    const bool critical = (type & 0x20000000) == 0;
    return type == name("acTL") || critical ? Status::unsupported : Status::ok;
  }

  [[nodiscard]] Status finish() const noexcept {
    if (!seen_data_) return Status::corrupt;
    const bool needs_palette = chunks_.header.color == PngColor::palette;
    return needs_palette && chunks_.palette_size == 0 ? Status::corrupt : Status::ok;
  }

 private:
  Status take_data(Bytes payload) noexcept {
    if (data_ended_) return Status::corrupt;  // the pieces must follow each other
    seen_data_ = true;
    chunks_.data.push_back(payload);
    chunks_.data_size += payload.size();
    return Status::ok;
  }

  Status take_palette(Bytes payload) noexcept {
    if (seen_data_ || chunks_.palette_size != 0) return Status::unsupported;
    const std::size_t entries = payload.size() / 3;
    if (payload.size() % 3 != 0 || entries == 0 || entries > 256) return Status::corrupt;
    chunks_.palette_size = entries;
    for (std::size_t i = 0; i < entries; ++i) {
      std::memcpy(&chunks_.palette[4 * i], &payload[3 * i], 3);
      chunks_.palette[4 * i + 3] = 255;
    }
    return Status::ok;
  }

  Status take_transparency(Bytes payload) noexcept {
    if (seen_data_ || seen_transparency_) return Status::unsupported;
    seen_transparency_ = true;
    switch (chunks_.header.color) {
      case PngColor::palette:
        if (chunks_.palette_size == 0 || payload.size() > chunks_.palette_size) {
          return Status::unsupported;
        }
        for (std::size_t i = 0; i < payload.size(); ++i) chunks_.palette[4 * i + 3] = payload[i];
        return Status::ok;
      case PngColor::grey: return take_key(payload, 1);
      case PngColor::rgb: return take_key(payload, 3);
      default: return Status::ok;  // forbidden beside an alpha channel; everybody ignores it
    }
  }

  Status take_key(Bytes payload, std::size_t samples) noexcept {
    if (payload.size() != 2 * samples) return Status::unsupported;
    for (std::size_t i = 0; i < samples; ++i) {
      chunks_.key[i] = static_cast<std::uint16_t>(payload[2 * i] << 8 | payload[2 * i + 1]);
    }
    chunks_.has_key = true;
    return Status::ok;
  }

  PngChunks& chunks_;
  bool seen_data_ = false;
  bool data_ended_ = false;
  bool seen_transparency_ = false;
};

}  // namespace

int PngHeader::samples() const noexcept {
  switch (color) {
    case PngColor::rgb: return 3;
    case PngColor::grey_alpha: return 2;
    case PngColor::rgba: return 4;
    default: return 1;
  }
}

Status read_png_header(Bytes file, PngHeader& header) noexcept {
  const std::size_t common = std::min(file.size(), signature.size());
  if (common == 0) return Status::truncated;
  if (std::memcmp(file.data(), signature.data(), common) != 0) return Status::not_image;
  if (file.size() < signature.size() + chunk_overhead + header_bytes) return Status::truncated;
  const std::uint8_t* chunk = file.data() + signature.size();
  if (read_u32(chunk) != header_bytes || read_u32(chunk + 4) != name("IHDR")) {
    return Status::corrupt;
  }
  return read_header(chunk + 8, header);
}

Status read_png_chunks(Bytes file, bool verify_data, PngChunks& chunks) noexcept {
  const Status status = read_png_header(file, chunks.header);
  if (status != Status::ok) return status;
  chunks.palette_size = 0;
  chunks.has_key = false;
  chunks.data.clear();
  chunks.data_size = 0;
  ChunkReader reader(chunks);
  Bytes rest = file.subspan(signature.size());
  for (bool first = true, before_data = true;; first = false) {
    Chunk chunk;
    const Status read = next_chunk(rest, chunk);
    if (read != Status::ok) return before_data && !begins_data(rest) ? read : Status::unsupported;
    before_data = before_data && chunk.type != name("IDAT");
    if ((verify_data || before_data) && !chunk.is_intact()) return Status::corrupt;
    if (chunk.type == name("IEND")) return reader.finish();
    if (!first) {
      const Status taken = reader.take(chunk.type, chunk.payload);
      if (taken != Status::ok) return taken;
    }
  }
}

Status check_png_chunks(Bytes file) noexcept {
  Bytes rest = file.subspan(std::min(file.size(), signature.size()));
  for (Chunk chunk;;) {
    const Status read = next_chunk(rest, chunk);
    if (read != Status::ok) return read;
    if (!chunk.is_intact()) return Status::bad_checksum;
    if (chunk.type == name("IEND")) return Status::ok;
  }
}

bool has_png_chunk(Bytes file, const char (&text)[5]) noexcept {
  Bytes rest = file.subspan(std::min(file.size(), signature.size()));
  while (rest.size() >= chunk_overhead) {
    const std::uint32_t length = read_u32(rest.data());
    if (read_u32(rest.data() + 4) == name(text)) return true;
    if (length > rest.size() - chunk_overhead) return false;
    rest = rest.subspan(chunk_overhead + length);
  }
  return false;
}

}  // namespace fastio
