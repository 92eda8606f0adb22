#include "module_tensors.h"

#include <array>

namespace fastio::python {
namespace {

/// DLManagedTensor of dlpack.h: what a capsule named "dltensor" points to.
struct ManagedTensor {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

/// Lives as long as the tensor that is made of it.
struct View {
  ManagedTensor managed;
  std::array<std::int64_t, most_dimensions> shape;
  std::array<std::int64_t, most_dimensions> strides;
  std::shared_ptr<void> owner;
};

void free_view(ManagedTensor* managed) noexcept {
  delete static_cast<View*>(managed->context);
}

/// Of a capsule that nobody made a tensor of; otherwise its name is another.
void free_capsule(PyObject* capsule) noexcept {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  free_view(static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
}

}  // namespace

nb::object make_tensor(const nb::object& from_dlpack, std::shared_ptr<void> owner,
                       const TensorLayout& layout) {
  auto view = std::make_unique<View>(View{{}, {}, {}, std::move(owner)});
  std::ranges::copy(layout.shape, view->shape.begin());
  std::ranges::copy(layout.strides, view->strides.begin());
  nb::dlpack::dltensor& tensor = view->managed.tensor;
  tensor.data = layout.data;
  tensor.device = {nb::device::cpu::value, 0};
  tensor.ndim = static_cast<std::int32_t>(layout.shape.size());
  tensor.dtype = layout.dtype;
  tensor.shape = view->shape.data();
  tensor.strides = layout.strides.empty() ? nullptr : view->strides.data();
  view->managed.context = view.get();
  view->managed.deleter = &free_view;
  const nb::object capsule = nb::steal(PyCapsule_New(&view->managed, "dltensor", &free_capsule));
  if (!capsule.is_valid()) throw nb::python_error();
  (void)view.release();
  PyObject* arguments[] = {nullptr, capsule.ptr()};  // PyObject_CallOneArg, in the stable ABI
  PyObject* made = PyObject_Vectorcall(from_dlpack.ptr(), arguments + 1,
                                       1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

}  // namespace fastio::python
