#include "fastio/png_pixels.h"

#include <cstring>

#include "fastio/pixels.h"

namespace fastio {
namespace {

/// Samples of 1, 2 or 4 bits to a byte each; grey is stretched to 0..255.
void unpack(const PngHeader& header, const std::uint8_t* row, std::size_t width,
            std::uint8_t* out) noexcept {
  const int depth = header.depth;
  const unsigned mask = (1U << depth) - 1;
  const unsigned scale = header.color == PngColor::grey ? 255 / mask : 1;
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t bit = x * static_cast<std::size_t>(depth);
    const unsigned sample = (row[bit / 8] >> (8 - depth - static_cast<int>(bit % 8))) & mask;
    out[x] = static_cast<std::uint8_t>(sample * scale);
  }
}

/// The high byte of every 16-bit sample; but grey is clipped, as Pillow does: 256 is white.
void narrow(const PngHeader& header, const std::uint8_t* row, std::size_t width,
            std::uint8_t* out) noexcept {
  const bool clip = header.color == PngColor::grey;
  const std::size_t samples = width * static_cast<std::size_t>(header.samples());
  for (std::size_t i = 0; i < samples; ++i) {
    const std::uint8_t high = row[2 * i];
    out[i] = clip ? (high != 0 ? 255 : row[2 * i + 1]) : high;
  }
}

/// Writes one pixel of the wanted channels.
template <int channel_count>
void put(std::uint8_t* out, std::uint8_t r, std::uint8_t g, std::uint8_t b,
         std::uint8_t a) noexcept {
  if constexpr (channel_count == 1) {
    out[0] = luma(r, g, b);
  } else {
    out[0] = r;
    out[1] = g;
    out[2] = b;
    if constexpr (channel_count == 4) out[3] = a;
  }
}

/// The key that grey samples are compared with: Pillow maps that of 1 bit and takes the
/// low byte of all others, even when the samples have been stretched or narrowed.
std::uint8_t grey_key(const PngChunks& png) noexcept {
  if (png.header.depth == 1) return png.key[0] != 0 ? 255 : 0;
  return static_cast<std::uint8_t>(png.key[0]);
}

template <int channel_count>
void from_grey(const PngChunks& png, const std::uint8_t* in, std::size_t width,
               std::uint8_t* out) noexcept {
  const std::uint8_t key = grey_key(png);
  for (std::size_t x = 0; x < width; ++x, out += channel_count) {
    const std::uint8_t v = in[x];
    const std::uint8_t alpha = png.has_key && v == key ? 0 : 255;
    if constexpr (channel_count == 1) {
      out[0] = v;
    } else {
      put<channel_count>(out, v, v, v, alpha);
    }
  }
}

template <int channel_count>
void from_grey_alpha(const std::uint8_t* in, std::size_t width, std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, in += 2, out += channel_count) {
    if constexpr (channel_count == 1) {
      out[0] = in[0];
    } else {
      put<channel_count>(out, in[0], in[0], in[0], in[1]);
    }
  }
}

template <int channel_count>
void from_rgb(const PngChunks& png, const std::uint8_t* in, std::size_t width,
              std::uint8_t* out) noexcept {
  const auto r = static_cast<std::uint8_t>(png.key[0]);
  const auto g = static_cast<std::uint8_t>(png.key[1]);
  const auto b = static_cast<std::uint8_t>(png.key[2]);
  for (std::size_t x = 0; x < width; ++x, in += 3, out += channel_count) {
    const bool keyed = png.has_key && in[0] == r && in[1] == g && in[2] == b;
    put<channel_count>(out, in[0], in[1], in[2], keyed ? 0 : 255);
  }
}

template <int channel_count>
void from_rgba(const std::uint8_t* in, std::size_t width, std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, in += 4, out += channel_count) {
    put<channel_count>(out, in[0], in[1], in[2], in[3]);
  }
}

template <int channel_count>
bool from_palette(const PngChunks& png, const std::uint8_t* in, std::size_t width,
                  std::uint8_t* out) noexcept {
  for (std::size_t x = 0; x < width; ++x, out += channel_count) {
    if (in[x] >= png.palette_size) return false;
    const std::uint8_t* entry = &png.palette[std::size_t{4} * in[x]];
    put<channel_count>(out, entry[0], entry[1], entry[2], entry[3]);
  }
  return true;
}

template <int channel_count>
bool convert(const PngChunks& png, const std::uint8_t* in, std::size_t width,
             std::uint8_t* out) noexcept {
  switch (png.header.color) {
    case PngColor::grey: from_grey<channel_count>(png, in, width, out); return true;
    case PngColor::grey_alpha: from_grey_alpha<channel_count>(in, width, out); return true;
    case PngColor::rgb: from_rgb<channel_count>(png, in, width, out); return true;
    case PngColor::rgba: from_rgba<channel_count>(in, width, out); return true;
    case PngColor::palette: return from_palette<channel_count>(png, in, width, out);
  }
  return false;
}

/// Samples of 16 bits in the machine's order.
void widen(const std::uint8_t* in, std::size_t samples, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < samples; ++i) {
    const auto number = static_cast<std::uint16_t>(in[2 * i] << 8 | in[2 * i + 1]);
    std::memcpy(out + 2 * i, &number, 2);
  }
}

}  // namespace

void expand_png_numbers(const PngHeader& header, const std::uint8_t* row, std::size_t first,
                        std::size_t width, std::uint8_t* out) noexcept {
  const auto samples = static_cast<std::size_t>(header.samples());
  if (header.depth == 16) {
    widen(row + 2 * samples * first, samples * width, out);
    return;
  }
  if (header.depth == 8) {
    std::memcpy(out, row + samples * first, samples * width);
    return;
  }
  const auto depth = static_cast<std::size_t>(header.depth);
  const unsigned mask = (1U << depth) - 1;
  const unsigned scale = header.color == PngColor::grey && depth > 1 ? 255 / mask : 1;
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t bit = (first + x) * depth;
    const unsigned sample = (unsigned{row[bit / 8]} >> (8 - depth - bit % 8)) & mask;
    out[x] = static_cast<std::uint8_t>(sample * scale);
  }
}

bool convert_png_row(const PngChunks& png, const std::uint8_t* row, std::size_t width, int channels,
                     std::uint8_t* samples, std::uint8_t* out) noexcept {
  const PngHeader& header = png.header;
  const std::uint8_t* in = row;
  if (header.depth == 16) {
    narrow(header, row, width, samples);
    in = samples;
  } else if (header.depth < 8) {
    unpack(header, row, width, samples);
    in = samples;
  }
  switch (channels) {
    case 1: return convert<1>(png, in, width, out);
    case 3: return convert<3>(png, in, width, out);
    case 4: return convert<4>(png, in, width, out);
    default: return false;
  }
}

}  // namespace fastio
