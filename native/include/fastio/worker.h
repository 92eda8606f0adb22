/// What one thread keeps between samples so that nothing is allocated in the loop.
#pragma once

#include "fastio/bmp.h"
#include "fastio/gif.h"
#include "fastio/jpeg.h"
#include "fastio/jpeg_writer.h"
#include "fastio/nearest.h"
#include "fastio/png.h"
#include "fastio/pnm.h"
#include "fastio/scratch.h"
#include "fastio/transformer.h"
#include "fastio/webp.h"

namespace fastio {

/// Decoder handles and their memory. One per thread; never shared.
class Worker {
 public:
  PngDecoder png;
  JpegDecoder jpeg;
  BmpDecoder bmp;
  GifDecoder gif;
  PnmDecoder pnm;
  WebpDecoder webp;
  Transformer transformer;
  NearestPicker nearest;
  JpegWriter jpeg_writer;
  Scratch picture;  // a whole picture of which a part is used
  Scratch resized;  // what is to be encoded
  Scratch row;      // a finished picture on its way into planes
};

}  // namespace fastio
