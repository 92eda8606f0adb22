/// What one thread keeps between samples so that nothing is allocated in the loop.
#pragma once

#include "fastio/jpeg.h"
#include "fastio/png.h"

namespace fastio {

/// Decoder handles and their memory. One per thread; never shared.
class Worker {
 public:
  PngDecoder png;
  JpegDecoder jpeg;
};

}  // namespace fastio
