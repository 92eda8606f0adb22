/// What one thread keeps between samples so that nothing is allocated in the loop.
#pragma once

#include <array>

#include "core/bytes.h"
#include "jpeg/jpeg.h"
#include "jpeg/writer.h"
#include "pictures/kinds.h"
#include "pictures/mask.h"
#include "png/png.h"
#include "transform/colours.h"
#include "transform/transform.h"

namespace fastio {

/// Decoder handles and their memory. One per thread; never shared.
class Worker {
 public:
  PngDecoder png;
  JpegDecoder jpeg;
  RegionDecoders regions;  // of other kinds
  Transformer transformer;
  Colourist colourist;
  NearestPicker nearest;
  NumberMover mover;
  JpegWriter jpeg_writer;
  DecodedPart decoded{};
  Scratch picture;                  // a whole picture of which a part is used
  Scratch resized;                  // what is to be encoded
  Scratch row;                      // a finished picture on its way into planes
  std::array<Scratch, 2> canvases;  // pictures between two plans
};

}  // namespace fastio
