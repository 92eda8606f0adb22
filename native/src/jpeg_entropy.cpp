// Our own entropy decoder in libjpeg-turbo's pipeline, and the test that lets it in.
#include "jpeg_entropy.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fastio/jpeg.h"
#include "jpeg_entropy_pictures.h"

namespace fastio {
namespace {

/// The head of libjpeg-turbo's `jpeg_entropy_decoder`.
struct EntropyDecoderHead {
  void (*start_pass)(j_decompress_ptr);
  boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
};

HuffmanCodes codes_of(const JHUFF_TBL& table) noexcept {
  return {std::span<const UINT8, 17>(table.bits).subspan<1>(),
          std::span<const UINT8, 256>(table.huffval)};
}

/// Whether both decoders give the same pixels of `file`.
bool agree_on(Bytes file) noexcept {
  constexpr std::size_t pixels = self_test_height * self_test_width * 3;
  std::array<std::uint8_t, pixels> own{};
  std::array<std::uint8_t, pixels> theirs{};
  JpegDecoder own_decoder(Entropy::fastio);
  JpegDecoder their_decoder(Entropy::libjpeg_turbo);
  const Picture own_picture{own.data(), self_test_height, self_test_width, 3};
  const Picture their_picture{theirs.data(), self_test_height, self_test_width, 3};
  return own_decoder.decode(file, own_picture) == Status::ok &&
         their_decoder.decode(file, their_picture) == Status::ok && own == theirs;
}

Entropy choose() noexcept {
  const char* wish = std::getenv("FASTIO_ENTROPY");
  const bool unwanted = wish != nullptr && std::strcmp(wish, "turbo") == 0;
  if (unwanted || !entropy_is_replaceable()) return Entropy::libjpeg_turbo;
  const bool agree =
      agree_on(plain_picture) && agree_on(restart_picture) && agree_on(progressive_picture);
  return agree ? Entropy::fastio : Entropy::libjpeg_turbo;
}

using Blocks = std::array<HuffmanDecoder::Block, HuffmanDecoder::most_blocks>;

/// Hands the tables of a scan to `reader`, a decoder or walker, and writes what the blocks of its
/// MCUs are to `blocks`. How many there are: none if it is not a scan that we can read.
template <typename Reader>
std::size_t set_tables(const jpeg_decompress_struct& info, Reader& reader,
                       Blocks& blocks) noexcept {
  const bool sequential = info.progressive_mode == 0 && info.Ss == 0 && info.Se == DCTSIZE2 - 1;
  const bool readable = sequential && info.arith_code == 0 && info.data_precision == 8 &&
                        info.comps_in_scan == info.num_components;
  const auto count = static_cast<std::size_t>(info.blocks_in_MCU);
  if (!readable || count > blocks.size()) return 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int component = info.MCU_membership[i];
    const jpeg_component_info& tables = *info.cur_comp_info[component];
    const JHUFF_TBL* dc = info.dc_huff_tbl_ptrs[tables.dc_tbl_no];
    const JHUFF_TBL* ac = info.ac_huff_tbl_ptrs[tables.ac_tbl_no];
    if (dc == nullptr || ac == nullptr) return 0;
    blocks[i] = {static_cast<std::uint8_t>(component), static_cast<std::uint8_t>(tables.dc_tbl_no),
                 static_cast<std::uint8_t>(tables.ac_tbl_no)};
    reader.set_dc_table(blocks[i].dc_table, codes_of(*dc));
    reader.set_ac_table(blocks[i].ac_table, codes_of(*ac));
  }
  return count;
}

/// Hands scan and tables to `decoder` if it can read them.
bool begin_scan(const jpeg_decompress_struct& info, HuffmanDecoder& decoder) noexcept {
  Blocks blocks{};
  const std::size_t count = set_tables(info, decoder, blocks);
  const std::size_t mcu_count = std::size_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
  if (count > 0) decoder.begin(std::span(blocks).first(count), mcu_count, info.restart_interval);
  return count > 0;
}

/// Whether our decoder has been put in place.
bool is_own(const jpeg_decompress_struct& info) noexcept {
  return static_cast<JpegEscape*>(info.client_data)->huffman != nullptr;
}

/// The MCUs of the scan that has begun.
ScanGrid grid_of(const jpeg_decompress_struct& info, std::size_t spacing) noexcept {
  return {info.MCUs_per_row, info.MCU_rows_in_scan, static_cast<std::size_t>(info.comps_in_scan),
          spacing};
}

/// `ok` where the end marker is what follows, behind bytes that are not needed: libjpeg passes
/// over these too.
Status find_end(Bytes input) noexcept {
  const std::uint8_t* next = input.data();
  const std::uint8_t* const stop = next + input.size();
  for (;;) {
    next = std::find(next, stop, 0xFF);
    next = std::find_if(next, stop, [](auto byte) { return byte != 0xFF; });
    if (next == stop) return Status::truncated;
    if (*next++ == 0) continue;
    return next[-1] == JPEG_EOI ? Status::ok : Status::unsupported;
  }
}

/// Whether the codes before bit `end` (not 0) end as an encoder ends a scan, and do not lie in what
/// fills the file to its end: one byte again and again, mostly zero, is often codes too.
bool ends_scan(Bytes file, std::uint64_t end) noexcept {
  const std::uint64_t at = end / 8;
  const unsigned rest = 0xFFU >> end % 8;
  const bool is_whole_byte = rest == 0xFF;
  if (!is_whole_byte && (at >= file.size() || (file[at] & rest) != rest)) return false;
  const Bytes tail = file.subspan((end - 1) / 8);
  const bool is_stuffed = is_whole_byte && at > 1 && tail[0] == 0 && file[at - 2] == 0xFF;
  return is_stuffed || tail.size() == 1 ||
         !std::ranges::all_of(tail, [&](auto byte) { return byte == tail[0]; });
}

/// Called by libjpeg for every MCU; blocks are null where it skips.
boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) noexcept {
  HuffmanDecoder& decoder = *static_cast<JpegEscape*>(info->client_data)->huffman;
  Bytes input(info->src->next_input_byte, info->src->bytes_in_buffer);
  const Status status = decoder.decode_mcu(input, blocks);
  if (status != Status::ok) leave(reinterpret_cast<j_common_ptr>(info), status);
  info->src->next_input_byte = input.data();
  info->src->bytes_in_buffer = input.size();
  return TRUE;
}

}  // namespace

Entropy entropy_in_use() noexcept {
  static const Entropy chosen = choose();
  return chosen;
}

bool entropy_is_replaceable() noexcept {
#if defined(FASTIO_STATIC_JPEG) && defined(LIBJPEG_TURBO_VERSION_NUMBER)
  constexpr int version = LIBJPEG_TURBO_VERSION_NUMBER;
  return (version >= 2001000 && version < 2002000) || (version >= 3000000 && version < 3003000);
#else
  return false;
#endif
}

bool limit_scan(const jpeg_decompress_struct& info, const WantedPixels& pixels, ScanHints& hints,
                HuffmanDecoder& decoder) noexcept {
  if (!is_own(info)) return false;
  const bool interleaved = info.comps_in_scan > 1;
  const auto width = static_cast<std::size_t>(DCTSIZE * (interleaved ? info.max_h_samp_factor : 1));
  const auto height =
      static_cast<std::size_t>(DCTSIZE * (interleaved ? info.max_v_samp_factor : 1));
  // Of the columns libjpeg uses those alone that jpeg_crop_scanline has left; of the rows those
  // above and below too, for smooth upsampling looks at the neighbours of a pixel.
  const HuffmanDecoder::Wanted wanted{
      .first_row = (pixels.y - std::min<std::size_t>(pixels.y, height)) / height,
      .last_row = std::min<std::size_t>(pixels.bottom / height + 1, info.MCU_rows_in_scan - 1),
      .first_column = pixels.x / width,
      .last_column = std::min<std::size_t>((pixels.right - 1) / width, info.MCUs_per_row - 1)};
  const Bytes input(info.src->next_input_byte, info.src->bytes_in_buffer);
  if (hints.table.read(hints.places.bytes(), hints.file, grid_of(info, 1), wanted.last_row) &&
      decoder.jump_by(hints.table, wanted, hints.file, input)) {
    return true;
  }
  decoder.pass_over_all_but(wanted, info.MCUs_per_row);
  decoder.jump_by(hints.places, hints.file);
  return false;
}

Status begin_walk(const jpeg_decompress_struct& info, Bytes file, std::size_t spacing,
                  ScanWalker& walker) noexcept {
  if (info.restart_interval != 0) return Status::unsupported;
  Blocks blocks{};
  const std::size_t count = set_tables(info, walker, blocks);
  if (count == 0) return Status::unsupported;
  const Bytes input(info.src->next_input_byte, info.src->bytes_in_buffer);
  const auto first = std::span(blocks).first(count);
  const bool has_begun = walker.begin(file, input, grid_of(info, spacing), first);
  return has_begun ? Status::ok : Status::no_memory;
}

Status end_walk(ScanWalker& walker, Blob& table) noexcept {
  Status status = walker.finish();
  if (status == Status::ok) status = find_end(walker.rest());
  if (status != Status::ok) return status;
  const bool is_written = write_jump_table(walker.points(), walker.grid(), walker.file(), table);
  return is_written ? Status::ok : Status::no_memory;
}

Status read_to_end(const jpeg_decompress_struct& info, Bytes file,
                   HuffmanDecoder& decoder) noexcept {
  if (!begin_scan(info, decoder)) return Status::truncated;
  Bytes input(info.src->next_input_byte, info.src->bytes_in_buffer);
  const std::size_t count = std::size_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
  for (std::size_t mcu = 0; mcu < count; ++mcu) {
    const Status status = decoder.decode_mcu(input, nullptr);
    if (status != Status::ok) return status;
  }
  return ends_scan(file, decoder.point(file, input).bit) ? Status::ok : Status::truncated;
}

bool find_damage(const jpeg_decompress_struct& info, Bytes file, HuffmanDecoder& decoder,
                 DamagePlace& place) noexcept {
  if (!begin_scan(info, decoder)) return false;
  Bytes input(info.src->next_input_byte, info.src->bytes_in_buffer);
  place.rows = info.MCU_rows_in_scan;
  for (place.row = 0; place.row < place.rows; ++place.row) {
    for (std::size_t column = 0; column < info.MCUs_per_row; ++column) {
      place.byte = decoder.point(file, input).bit / 8;
      if (decoder.decode_mcu(input, nullptr) != Status::ok) return true;
    }
  }
  place.byte = decoder.point(file, input).bit / 8;
  return find_end(input) != Status::ok;
}

void use_own_entropy_decoder(jpeg_decompress_struct& info, HuffmanDecoder& decoder) noexcept {
  const bool can_read = begin_scan(info, decoder);
  static_cast<JpegEscape*>(info.client_data)->huffman = can_read ? &decoder : nullptr;
  if (!can_read) return;
  reinterpret_cast<EntropyDecoderHead*>(info.entropy)->decode_mcu = decode_mcu;
}

}  // namespace fastio
