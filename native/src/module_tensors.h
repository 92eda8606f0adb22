/// Tensors over memory of ours, made by DLPack: the only way of making one that needs neither
/// torch's headers nor an array of numpy in between.
#pragma once

#include <span>

#include "module.h"

namespace fastio::python {

/// An array of `dtype` from `data` on. Without `strides` (in elements) it is in C order.
struct TensorLayout {
  void* data;
  nb::dlpack::dtype dtype;
  std::span<const std::int64_t> shape;  ///< at most `most_dimensions`
  std::span<const std::int64_t> strides = {};
};

constexpr std::size_t most_dimensions = 8;

/// A tensor made by `from_dlpack`, torch's function of that name. It keeps `owner`, which may die
/// in any thread, with or without the GIL.
nb::object make_tensor(const nb::object& from_dlpack, std::shared_ptr<void> owner,
                       const TensorLayout& layout);

}  // namespace fastio::python
