#include "files/tar_members.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace fastio {
namespace {

// Offsets of the fields of a ustar header; those not named are zeros.
constexpr std::size_t mode_at = 100;
constexpr std::size_t size_at = 124;
constexpr std::size_t sum_at = 148;
constexpr std::size_t type_at = 156;
constexpr std::size_t magic_at = 257;
constexpr std::size_t device_at = 329;
constexpr std::size_t sum_digits = 6;
constexpr std::size_t size_digits = 11;

using Header = std::array<char, tar_block>;

constexpr void put(Header& header, std::size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
}

/// What all headers have in common; the checksum counts as eight blanks while it is summed.
constexpr Header blank() {
  Header header{};
  put(header, mode_at,
      std::string_view("0000644\0"
                       "0000000\0"
                       "0000000\0",
                       24));
  put(header, size_at + size_digits,
      std::string_view("\0"
                       "00000000000\0",
                       13));
  put(header, sum_at, "        ");
  put(header, type_at, "0");
  put(header, magic_at,
      std::string_view("ustar\0"
                       "00",
                       8));
  put(header, device_at,
      std::string_view("0000000\0"
                       "0000000\0",
                       16));
  return header;
}

constexpr Header common = blank();

void put_octal(std::uint8_t* to, std::size_t digits, std::uint64_t value) noexcept {
  for (std::size_t i = digits; i-- > 0; value >>= 3) {
    to[i] = static_cast<std::uint8_t>('0' + (value & 7));
  }
}

std::uint8_t* append(std::uint8_t* to, const void* data, std::size_t size) noexcept {
  if (size > 0) std::memcpy(to, data, size);
  return to + size;
}

}  // namespace

bool fits_ustar(const TarMember& member) noexcept {
  return member.name.size() <= tar_name_max &&
         member.prefix.size() + member.value.size() <= tar_size_max;
}

void write_tar_member(const TarMember& member, std::uint8_t* out) noexcept {
  std::memcpy(out, common.data(), tar_block);
  append(out, member.name.data(), member.name.size());
  const std::size_t size = member.prefix.size() + member.value.size();
  put_octal(out + size_at, size_digits, size);
  const std::uint32_t sum = std::accumulate(out, out + tar_block, std::uint32_t{0});
  put_octal(out + sum_at, sum_digits, sum);
  out[sum_at + sum_digits] = 0;
  std::uint8_t* end = append(out + tar_block, member.prefix.data(), member.prefix.size());
  end = append(end, member.value.data(), member.value.size());
  std::memset(end, 0, static_cast<std::size_t>(out + tar_member_bytes(size) - end));
}

}  // namespace fastio
