"""Fields: what the user says of the fields of samples, and what the first samples say of the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastio import _native
from fastio.converters.fields.arrays import UnfitError, as_numpy, common_shape, is_tensor
from fastio.converters.fields.pictures import file_or_bytes
from fastio.errors import SchemaError
from fastio.types.bfloat16 import BFLOAT16, dtype_name, is_bfloat16
from fastio.types.field_types import FieldType, field_of, type_of
from fastio.types.picture_kinds import UNKNOWN, kind_by_name
from fastio.types.schema import BOX_ROLES, Field, Schema

__all__ = [
    "Fields",
    "FieldsAsked",
    "infer_field",
]


# The type of each field by its name, None for those to be inferred; or their names alone; or None for whatever the
# first sample has.
FieldsAsked = Mapping[str, FieldType | None] | Sequence[str] | Schema | None


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of samples in order, each with its type, or None if that is to be inferred; None: not known yet."""

    named: Mapping[str, Field | None] | None

    @classmethod
    def of(cls, asked: FieldsAsked) -> Fields:
        """Read what the user says. Raises SchemaError for types that do not exist, and impossible names."""
        if asked is None:
            return cls(None)
        if isinstance(asked, Schema):
            return cls({field.name: field for field in asked.fields})
        if isinstance(asked, str):
            raise SchemaError(f"fields={asked!r}: expected names with types, as in fields={{{asked!r}: 'image'}}")
        names = list(asked) if isinstance(asked, Iterable) else [asked]
        if not all(isinstance(name, str) for name in names):
            raise SchemaError(
                f"fields={asked!r}: expected names with types, as in fields={{'image': 'image'}}, or names"
            )
        types = asked if isinstance(asked, Mapping) else dict.fromkeys(names)
        if not types or len(types) != len(names):
            raise SchemaError(f"fields={asked!r}: expected at least one field, and each once")
        return cls({name: None if type_ is None else field_of(name, type_) for name, type_ in types.items()})

    @property
    def names(self) -> list[str] | None:
        """The names in order, if they are known."""
        return None if self.named is None else list(self.named)

    @property
    def schema(self) -> Schema | None:
        """The schema if all types are known."""
        if self.named is None or None in self.named.values():
            return None
        return checked(Schema(tuple(field for field in self.named.values() if field is not None)))

    def inferred(self, samples: Sequence[Mapping[str, Any]]) -> Schema:
        """
        Return the schema of the first samples, see ``infer_field``.

        Without names, those of the first sample count. Samples that lack a field tell nothing about it.
        """
        named = self.named or dict.fromkeys(samples[0])
        fields = []
        for name, field in named.items():
            values = [sample[name] for sample in samples if name in sample]
            if field is None and not values:
                raise SchemaError(f"field {name!r}: none of the first {len(samples)} samples has it")
            fields.append(field or infer_field(name, values))
        return checked(Schema(tuple(fields)))


def checked(schema: Schema) -> Schema:
    """Return the schema. Raises SchemaError if all its fields are columns: a store keeps samples by their payload."""
    if not schema.payload:
        raise SchemaError(
            f"the fields {', '.join(field.name for field in schema.fields)} are all columns: at least one must be a "
            "picture, text, JSON, bytes or an array; ('float32', (4,)) is such an array"
        )
    return schema


# Which type a field has whose values nobody has described, from the values of the first samples.

_BOXES = frozenset({"boxes", "bbox", "bboxes"})
_NUMBERS = (bool, int, float, np.bool_, np.number)


def infer_field(name: str, values: Sequence[Any]) -> Field:
    """
    Return the field for these values, those of the first samples.

    * lists of what makes a picture or bytes, none among them or many: lists of these, ``image[*]``
    * ``bytes`` and files (a ``Path``, Hugging Face's ``{"bytes", "path"}``): a picture if all are one, else bytes
    * a PIL image: a picture; ``str``: text; a dict, a list of anything but numbers, or ``None`` among them: JSON
    * bool, int, float: a column of that type, of NumPy's own for its scalars; int and float: float
    * arrays and tensors: of fixed shape, or with ``*`` for each size that differs
    * lists of numbers: ragged int64 or float64
    * in fields called "image", "mask" or "..._mask", arrays are pictures, and pictures in the last two are masks

    ``None`` tells nothing, so others decide. Raises SchemaError for values of different types, for text called
    "label", paths as ``str`` called "image", and boxes, whose format no number tells: name the type of such a field.
    """
    given = [value for value in values if value is not None]
    if not given:
        raise _unclear(name, "None in all of the first samples")
    kinds = {_kind(name, value) for value in given}
    if kinds == {"int", "float"}:
        kinds = {"float"}
    for listed in kinds & {"files", "json"}:
        if all(kind == listed or (kind == "list" and not value) for kind, value in _with_kinds(name, given)):
            kinds = {listed}  # beside empty lists
    if len(kinds) > 1:
        raise _unclear(name, f"{' in some samples and '.join(sorted(kinds))} in others")
    return _FIELDS[kinds.pop()](name, given)


def _kind(name: str, value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bytes, bytearray, memoryview, os.PathLike)):
        return "bytes"
    if isinstance(value, Mapping):
        return "bytes" if set(value) == {"bytes", "path"} else "json"
    if isinstance(value, Image.Image):
        return "picture"
    if isinstance(value, np.generic):
        return "scalar"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, np.ndarray) or is_tensor(value):
        if value.ndim == 0:
            return "scalar"
        return "picture" if _is_picture_name(name) and value.ndim > 1 else "array"
    if isinstance(value, (list, tuple)):
        if value and all(_is_file(each) for each in value):
            return "files"
        return "list" if _is_numbers(value) else "json"
    raise _unclear(name, f"{type(value).__name__}")


def _with_kinds(name: str, values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    return ((_kind(name, value), value) for value in values)


def _is_file(value: Any) -> bool:
    """Whether an element of a list is a picture or bytes: no text, and no array, which may be of numbers."""
    if isinstance(value, Mapping):
        return set(value) == {"bytes", "path"}
    return isinstance(value, (bytes, bytearray, memoryview, os.PathLike, Image.Image))


def _is_numbers(value: Sequence[Any]) -> bool:
    """Whether a list holds numbers, arrays of numbers, or lists of these; an empty one does."""
    return all(
        isinstance(each, (*_NUMBERS, np.ndarray))
        or is_tensor(each)
        or (isinstance(each, (list, tuple)) and _is_numbers(each))
        for each in value
    )


def _is_mask_name(name: str) -> bool:
    return name == "mask" or name.endswith("_mask")


def _is_picture_name(name: str) -> bool:
    return name == "image" or _is_mask_name(name)


def _text(name: str, values: Sequence[Any]) -> Field:
    if name == "label":
        raise _unclear(name, 'text; give metadata={"classes": [...]} and the type "label" for names of classes')
    if _is_picture_name(name):
        raise _unclear(name, 'text; say "image" or "mask" if these are paths')
    if any(kind_by_name(value) and Path(value).is_file() for value in values):
        raise _unclear(
            name, f'names of files that exist ({values[0]!r:.60}); say "image" to pack these, "text" for names'
        )
    return field_of(name, "text")


def _bytes(name: str, values: Sequence[Any]) -> Field:
    try:
        encoded = [file_or_bytes(value) or b"" for value in values]
    except UnfitError:  # the sample with that value will say so
        encoded = [bytes(value) for value in values if isinstance(value, (bytes, bytearray, memoryview))]
    kinds = [_native.image_kind(np.frombuffer(data, np.uint8)) for data in encoded]
    if kinds and all(int(kind) != UNKNOWN for kind in kinds):
        return _picture(name, values)
    if _is_picture_name(name):
        raise _unclear(name, "bytes that are no pictures")
    return field_of(name, "bytes")


def _files(name: str, values: Sequence[Any]) -> Field:
    """A list of pictures, masks or bytes, by all elements of these lists."""
    elements = [element for value in values for element in value]
    pillow = [element for element in elements if isinstance(element, Image.Image)]
    others = [element for element in elements if not isinstance(element, Image.Image)]
    of = {_bytes(name, others)} if others else set()
    of |= {_picture(name, pillow)} if pillow else set()
    if len(of) > 1:
        raise _unclear(name, f"lists of {' and of '.join(sorted(map(str, of)))}")
    return field_of(name, f"{type_of(of.pop())}[*]")


def _picture(name: str, values: Sequence[Any]) -> Field:
    if not _is_mask_name(name):
        return field_of(name, "image")
    is_deep = any(
        (isinstance(value, Image.Image) and value.mode.startswith("I"))
        or ((isinstance(value, np.ndarray) or is_tensor(value)) and value.ndim > 1 and int(value.max()) > 0xFF)
        for value in values
    )
    return field_of(name, "mask16" if is_deep else "mask")


def _scalar(name: str, values: Sequence[Any]) -> Field:
    dtypes = {_dtype(name, value) for value in values}
    if len(dtypes) > 1:
        raise _unclear(name, f"of the dtypes {', '.join(sorted(map(str, dtypes)))}")
    dtype = dtypes.pop()
    return field_of(name, "label" if name == "label" and dtype.kind in "iu" and dtype != np.uint64 else dtype.name)


def _array(name: str, values: Sequence[Any]) -> Field:
    dtypes, shapes = {_dtype(name, value) for value in values}, {tuple(value.shape) for value in values}
    if len(dtypes) > 1:
        raise _unclear(name, f"arrays of the dtypes {', '.join(sorted(map(str, dtypes)))}")
    roles = {value.format.name.lower() for value in values if type(value).__name__ == "BoundingBoxes"}
    if roles:
        if len(roles) > 1 or not roles <= set(BOX_ROLES):
            raise _unclear(name, f"boxes of the formats {', '.join(sorted(roles))}")
        return field_of(name, roles.pop())
    return _of_shapes(name, dtypes.pop(), shapes)


def _list(name: str, values: Sequence[Any]) -> Field:
    arrays = [array for value in values if (array := _as_array(name, value)).size]
    if not arrays:
        raise _unclear(name, "empty lists in all of the first samples")
    kinds = {array.dtype.kind for array in arrays}
    dtype = np.dtype("f8" if "f" in kinds else "?" if kinds == {"b"} else "i8")
    if not kinds <= set("biuf"):
        raise _unclear(name, "lists of other values than numbers")
    return _of_shapes(name, dtype, {array.shape for array in arrays}, is_ragged=True)


def _as_array(name: str, value: Any) -> Any:
    try:
        return as_numpy(value, expected="numbers")
    except UnfitError as exc:
        raise _unclear(name, f"a value that {exc}") from exc


def _of_shapes(name: str, dtype: np.dtype[Any], shapes: set[tuple[int, ...]], *, is_ragged: bool = False) -> Field:
    """As many sizes as all have, None for those that differ; ragged arrays differ in the first."""
    if len({len(shape) for shape in shapes}) > 1:
        raise _unclear(name, f"arrays of the shapes {', '.join(map(str, sorted(shapes)[:4]))}")
    shape = common_shape(shapes)
    if name in _BOXES and shape[1:] == (4,):
        raise _unclear(name, f"boxes; say {', '.join(BOX_ROLES)}, or {dtype_name(dtype)}[*,4] to leave them alone")
    return field_of(name, (dtype.str, (None, *shape[1:]) if is_ragged else shape))


def _dtype(name: str, value: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = _as_array(name, value).dtype
    if dtype.kind not in "biufc" and not is_bfloat16(dtype):
        raise _unclear(name, f"of the dtype {dtype}")
    return np.dtype(BFLOAT16) if is_bfloat16(dtype) else dtype


_FIELDS = {
    "text": _text,
    "bytes": _bytes,
    "picture": _picture,
    "json": lambda name, _values: field_of(name, "json"),
    "bool": lambda name, _values: field_of(name, "bool"),
    "int": lambda name, _values: field_of(name, "int"),
    "float": lambda name, _values: field_of(name, "float"),
    "scalar": _scalar,
    "array": _array,
    "list": _list,
    "files": _files,
}


def _unclear(name: str, what: str) -> SchemaError:
    return SchemaError(f"field {name!r}: its values are {what}: give its type, as in fields={{{name!r}: ...}}")
