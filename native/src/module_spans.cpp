// A fastio.types.spans.Spans on its way into the native core.
#include <array>

#include "module.h"

#if !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED)
#define FASTIO_READS_SLOTS
// Needs Python.h before it.
#include <structmember.h>
#endif

namespace fastio::python {
namespace {

enum Name { buffers_, shard_, starts_, sizes_, checksums_, intervals_, name_count };

/// Reads the attributes of a class with __slots__ from where they lie in its objects. Looking each
/// up by name takes 0.1 to 0.2 us a call more, which Python code that passes them one by one does
/// not spend either. The stable ABI does not tell where slots lie, and without the GIL another
/// thread may replace what lies there between the look and the reference: names are looked up then.
class Slots {
 public:
  Slots() {
    constexpr const char* names[] = {"buffers", "shard",     "starts",
                                     "sizes",   "checksums", "intervals"};
    for (std::size_t i = 0; i < name_count; ++i) names_[i] = PyUnicode_InternFromString(names[i]);
  }

  /// The object's attribute, or null, without an exception, where it has none of this name.
  nb::object get(nb::handle object, Name name) {
#ifdef FASTIO_READS_SLOTS
    if (Py_TYPE(object.ptr()) == type_ || learn(Py_TYPE(object.ptr()))) {
      const char* slot = reinterpret_cast<const char*>(object.ptr()) + offsets_[name];
      return nb::borrow(*reinterpret_cast<PyObject* const*>(slot));  // null where it was deleted
    }
#endif
    PyObject* value = PyObject_GetAttr(object.ptr(), names_[name]);
    if (value == nullptr) PyErr_Clear();
    return nb::steal(value);
  }

 private:
#ifdef FASTIO_READS_SLOTS
  /// Takes the class for the one whose objects come from now on; false where it has other
  /// attributes, or none.
  bool learn(PyTypeObject* type) {
    std::array<Py_ssize_t, name_count> offsets;
    for (std::size_t i = 0; i < name_count; ++i) {
      const nb::object member =
          nb::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names_[i]));
      if (!member.is_valid()) PyErr_Clear();
      if (!member.is_valid() || !Py_IS_TYPE(member.ptr(), &PyMemberDescr_Type)) return false;
      const auto* slot = reinterpret_cast<PyMemberDescrObject*>(member.ptr());
      if (slot->d_common.d_type != type || slot->d_member->type != T_OBJECT_EX) return false;
      offsets[i] = slot->d_member->offset;
    }
    Py_INCREF(type);  // so that no other class gets its address
    Py_XDECREF(type_);
    type_ = type;
    offsets_ = offsets;
    return true;
  }

  PyTypeObject* type_ = nullptr;
  std::array<Py_ssize_t, name_count> offsets_{};
#endif
  std::array<PyObject*, name_count> names_;
};

/// The one of the process; first asked for by `bind_spans`. (A thread that waits for another to
/// make a static would not let Python stop all threads, and making this one may have to wait for
/// that.)
Slots& slots() {
  static Slots slots;
  return slots;
}

nb::object attribute(nb::handle object, Name name) noexcept {
  return slots().get(object, name);
}

/// Takes the attribute for an array, without converting it; false where it is none of this type.
template <typename T>
bool read_array(nb::handle object, Name name, T& out, nb::detail::cleanup_list* cleanup) noexcept {
  const nb::object array = attribute(object, name);
  nb::detail::make_caster<T> caster;
  if (!array.is_valid() || !caster.from_python(array, 0, cleanup)) return false;
  out = std::move(caster.value);
  return true;
}

}  // namespace

void bind_spans() {
  (void)slots();
}

bool Spans::read(nb::handle source, nb::detail::cleanup_list* cleanup) noexcept {
  buffers = attribute(source, buffers_);
  python_ = nb::borrow(source);
  return buffers.is_valid() && nb::isinstance<Buffers>(buffers) &&
         read_array(source, shard_, shard, cleanup) &&
         read_array(source, starts_, starts, cleanup) && read_array(source, sizes_, sizes, cleanup);
}

Checksums Spans::checksums(bool verify) const {
  if (!verify) return {};
  const nb::object array = attribute(python_, checksums_);
  Array<const std::uint32_t, 1> sums;
  if (!array.is_valid() || (!array.is_none() && !nb::try_cast(array, sums, false))) {
    throw nb::type_error("spans.checksums: expected a C-contiguous uint32 array or None");
  }
  return array.is_none() ? Checksums() : Checksums(std::move(sums));
}

std::optional<Spans> Spans::intervals() const {
  const nb::object object = attribute(python_, intervals_);
  if (object.is_none()) return {};
  Spans spans;
  if (!object.is_valid() || !nb::try_cast(object, spans, false)) {
    throw nb::type_error("spans.intervals: expected Spans or None");
  }
  expect_length("intervals", spans.size(), size());
  expect_length("shard of intervals", spans.shard.size(), size());
  expect_length("sizes of intervals", spans.sizes.size(), size());
  return spans;
}

}  // namespace fastio::python
