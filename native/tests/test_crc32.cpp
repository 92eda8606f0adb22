// CRC-32 against its published check value.
#include <cstdint>

#include "check.h"
#include "fastio/crc32.h"

int main() {
  const std::uint8_t text[] = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  const fastio::Bytes all(text);
  EXPECT(fastio::crc32(all) == 0xCBF43926U);
  EXPECT(fastio::crc32(all.subspan(4), fastio::crc32(all.first(4))) == 0xCBF43926U);
  EXPECT(fastio::crc32({}) == 0);
  EXPECT(fastio::crc32({}, 7) == 7);
  return failures;
}
