// libFuzzer target: the header readers of all kinds on hostile bytes.
#include <cstdlib>

#include "pictures/probe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fastio::ImageInfo info = fastio::probe_image({data, size});
  const bool positive = info.height > 0 && info.width > 0;
  if ((info.status == fastio::Status::ok) != positive) std::abort();
  return 0;
}
