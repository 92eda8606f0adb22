// Views of a flat array as DLPack capsules: they share its memory, at little cost each.
#include <algorithm>
#include <array>

#include "module.h"

namespace fastio::python {
namespace {

using namespace nb::literals;

using Flat = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// DLManagedTensor of dlpack.h: what a capsule named "dltensor" points to.
struct ManagedTensor {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

/// Lives as long as the tensor that is made of it. Letting go of `memory` takes the GIL itself,
/// and only where it was the last to hold it: tensors die in any thread.
struct View {
  ManagedTensor managed;
  std::array<std::int64_t, 2> shape;
  Flat memory;
};

void free_view(ManagedTensor* managed) noexcept {
  delete static_cast<View*>(managed->context);
}

/// Of a capsule that nobody made a tensor of; otherwise its name is another.
void free_capsule(PyObject* capsule) noexcept {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  free_view(static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
}

using Shapes = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// `shape` has `dimensions` numbers, at most as many as View::shape.
nb::object capsule_of(const Flat& flat, std::size_t start, const std::int64_t* shape,
                      std::size_t dimensions) {
  auto view = std::make_unique<View>(View{{}, {}, flat});
  std::copy_n(shape, dimensions, view->shape.data());
  nb::dlpack::dltensor& tensor = view->managed.tensor;
  tensor.data = static_cast<std::uint8_t*>(flat.data()) + start * flat.itemsize();
  tensor.device = {flat.device_type(), flat.device_id()};
  tensor.ndim = static_cast<std::int32_t>(dimensions);
  tensor.dtype = flat.dtype();
  tensor.shape = view->shape.data();  // no strides: row behind row
  view->managed.context = view.get();
  view->managed.deleter = &free_view;
  PyObject* capsule = PyCapsule_New(&view->managed, "dltensor", &free_capsule);
  if (capsule == nullptr) throw nb::python_error();
  (void)view.release();
  return nb::steal(capsule);
}

/// Whether so many elements have this shape.
bool has_shape(std::int64_t count, const std::int64_t* shape, std::size_t dimensions) {
  std::int64_t size = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(size, shape[i], &size)) return false;
  }
  return size == count;
}

nb::list views(const Flat& flat, const Int64s& cuts, const Shapes& shapes) {
  const std::size_t dimensions = shapes.shape(1);
  if (cuts.size() != shapes.shape(0) + 1)
    throw nb::value_error("one cut more than shapes expected");
  if (dimensions < 1 || dimensions > 2) throw nb::value_error("shapes of 1 or 2 numbers expected");
  nb::list made;
  for (std::size_t i = 0; i < shapes.shape(0); ++i) {
    const std::int64_t start = cuts.data()[i], stop = cuts.data()[i + 1];
    const std::int64_t* shape = shapes.data() + i * dimensions;
    if (start < 0 || stop < start || static_cast<std::uint64_t>(stop) > flat.size() ||
        !has_shape(stop - start, shape, dimensions)) {
      throw nb::value_error(("view " + std::to_string(i) + ", elements " + std::to_string(start) +
                             " to " + std::to_string(stop) + " of " + std::to_string(flat.size()) +
                             ", has another shape")
                                .c_str());
    }
    made.append(capsule_of(flat, static_cast<std::size_t>(start), shape, dimensions));
  }
  return made;
}

}  // namespace

void bind_views(nb::module_& m) {
  m.def("views", &views, "flat"_a.noconvert(), "cuts"_a.noconvert(), "shapes"_a.noconvert(),
        nb::sig("def views(flat: NDArray[Any], cuts: NDArray[np.int64], "
                "shapes: NDArray[np.int64]) -> list[Any]"),
        "For each k a DLPack capsule of ``flat[cuts[k]:cuts[k + 1]].reshape(shapes[k])``, which\n"
        "from_dlpack makes a tensor of, once. ``shapes`` is (n, 1) or (n, 2).");
}

}  // namespace fastio::python
