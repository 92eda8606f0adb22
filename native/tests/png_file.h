/// PNG files for tests, from a header and filtered rows.
#pragma once

#include <libdeflate.h>

#include <array>
#include <cstdint>
#include <vector>

#include "core/checksum.h"

using File = std::vector<std::uint8_t>;

inline void put_u32(File& file, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    file.push_back(static_cast<std::uint8_t>(value >> shift));
  }
}

inline void put_chunk(File& file, const char* type, fastio::Bytes payload) {
  put_u32(file, static_cast<std::uint32_t>(payload.size()));
  const std::size_t start = file.size();
  file.insert(file.end(), type, type + 4);
  file.insert(file.end(), payload.begin(), payload.end());
  put_u32(file, fastio::crc32({file.data() + start, file.size() - start}));
}

/// The payload of IHDR, the rows each behind its filter byte, and the palette if there is one.
inline File png_file(const std::array<std::uint8_t, 13>& header, fastio::Bytes filtered,
                     const File& palette = {}) {
  File file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  put_chunk(file, "IHDR", header);
  if (!palette.empty()) put_chunk(file, "PLTE", palette);
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(6);
  File stream(64 + 2 * filtered.size());
  stream.resize(libdeflate_zlib_compress(compressor, filtered.data(), filtered.size(),
                                         stream.data(), stream.size()));
  libdeflate_free_compressor(compressor);
  put_chunk(file, "IDAT", stream);
  put_chunk(file, "IEND", {});
  return file;
}
