// libFuzzer target: the PNM reader on hostile bytes.
#include "fuzz_picture.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fastio::Worker worker;  // kept, as a thread of the pool keeps it: state must not leak over
  const fastio::Bytes file(data, size);
  if (fastio::image_kind(file) == fastio::ImageKind::pnm) fastio::decode_as_all(worker, file);
  return 0;
}
