"""The fields of samples in words, for people, and as JSON, for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.codec.copied import parse_json, pixels_of
from fastio.codec.headers import Header, read_headers
from fastio.store import SampleStore
from fastio.store.protocol import read_values
from fastio.types.bfloat16 import widened
from fastio.types.field_types import type_of
from fastio.types.npy import npy_array
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.schema import Field

__all__ = [
    "class_name",
    "json_values",
    "type_words",
    "value_words",
]


_NUMBERS = 8  # of an array, in words


def type_words(field: Field) -> str:
    """
    Return a field's type as ``field_of`` takes it, "image" or "float32[512]"; for text in a column "text column".
    """
    return "text column" if np.dtype(field.dtype).kind in "SU" else type_of(field)


def value_words(store: SampleStore, index: int, fields: Sequence[Field], *, width: int) -> dict[str, str]:
    """
    Return the value of each of these fields of one sample in words, at most about ``width`` characters.

    Only these fields are read. Raises StoreError for a value that cannot be read; a damaged one is described as it is.
    """
    return {field.name: _cut(_words(store, index, field, width), width) for field in fields}


def json_values(store: SampleStore, index: int) -> dict[str, Any]:
    """
    Return the fields of one sample for JSON.

    Text, JSON documents, token ids, ragged arrays and columns by value; pictures, arrays of fixed shape and bytes by
    their size, arrays of several free sizes by size and shape. Of a field of lists, a list of these, or null for a
    value that is missing. A document that is damaged comes as text.
    """
    values: dict[str, Any] = {}
    for field in store.schema.fields:
        traits = field.traits
        if field.is_list:
            elements, which = _elements(store, field, index)
            each = [json_values(elements, i)[field.name] for i in which]
            values[field.name] = each if not field.is_optional else each[0] if each else None
        elif field.is_column:
            values[field.name] = _listed(np.asarray(store.column(field.name)[index]))
        elif traits.is_text or traits.is_json:
            text = _text(_bytes(store, field, index))
            values[field.name] = _document(text) if traits.is_json else text
        elif traits.is_npy:
            (shape,) = store.shapes(field.name)[[index]].tolist()
            sizes = store.spans(field.name, np.array([index]), checksums=False).sizes
            values[field.name] = {"size_bytes": int(sizes[0]), "shape": shape}
        elif traits.is_ragged or traits.is_tokens:
            values[field.name] = _listed(_array(field, _bytes(store, field, index)))
        else:
            sizes = store.spans(field.name, np.array([index]), checksums=False).sizes
            values[field.name] = {"size_bytes": int(sizes[0])}
    return values


def class_name(metadata: Mapping[str, Any], field: str, number: Any) -> str | None:
    """Return the name of a class number of a field, None without one."""
    names = metadata.get("classes") if field == "label" else (metadata.get("field_classes") or {}).get(field)
    is_known = names and isinstance(number, int) and 0 <= number < len(names)
    return str(names[number]) if names and is_known else None


def _words(store: SampleStore, index: int, field: Field, width: int) -> str:
    if field.is_list:
        elements, which = _elements(store, field, index)
        words = "; ".join(_words(elements, i, field.element, width) for i in which[:_NUMBERS])
        number = "" if field.is_optional else f"{len(which)}: "
        return f"{number}{words}" if which else "none"
    if field.is_column:
        return _column_words(store, index, field)
    data, traits = _bytes(store, field, index), field.traits
    if traits.is_picture:
        header = read_headers(read_values(store, field.name, np.array([index])))[0]
        return f"{_picture_words(header)}, {len(data):,} bytes"
    if traits.is_text:
        return repr(_text(data[: 4 * width]))
    if traits.is_json:
        return _text(data[: 4 * width])
    if traits.is_planar:
        return _numbers(pixels_of(field, np.frombuffer(data, np.uint8)))
    if traits.is_npy:
        shape = "x".join(map(str, store.shapes(field.name)[index].tolist()))
        return f"{shape}: {_numbers(widened(npy_array(field, data)))}"
    if not traits.is_plain:
        return f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    array = _array(field, data)
    if not (traits.is_ragged or traits.is_tokens):
        return _numbers(array)
    unit = "id" if traits.is_tokens else "row"
    words = f"{len(array)} {unit}{'' if len(array) == 1 else 's'}"
    return f"{words}: {_row_words(store, field, array)}" if len(array) else words


def _elements(store: SampleStore, field: Field, index: int) -> tuple[SampleStore, list[int]]:
    """Return the store of the elements of a field of lists, and those of a sample."""
    elements = store.elements(field.name)
    return elements, elements.of(np.array([index]))[0].tolist()


def _column_words(store: SampleStore, index: int, field: Field) -> str:
    value = store.column(field.name)[index]
    if field.shape:
        return _numbers(np.asarray(value))
    number = value.tolist()
    name = class_name(store.metadata, field.name, number)
    if name is not None:
        return f"{number} ({name})"
    return f"{number:.6g}" if isinstance(number, float) else repr(number)


def _row_words(store: SampleStore, field: Field, array: NDArray[Any]) -> str:
    names = [class_name(store.metadata, field.name, number) for number in array[:_NUMBERS].ravel().tolist()]
    return " ".join(map(str, names)) if all(names) else _numbers(array)


def _picture_words(header: Header) -> str:
    kind = PICTURE_KINDS[header.kind].name
    return f"{kind}, {header.height} x {header.width}" if header.height else kind


def _numbers(array: NDArray[Any]) -> str:
    shown = np.array2string(array.ravel()[:_NUMBERS], precision=4, separator=" ", max_line_width=1000)
    return shown if array.size <= _NUMBERS else f"{shown[:-1]} ...]"


def _array(field: Field, data: bytes) -> NDArray[Any]:
    """Return the value of a plain field; what is left of an incomplete row is dropped."""
    unit = field.unit_bytes if field.traits.is_ragged or field.traits.is_tokens else 1
    whole = data if unit <= 1 else data[: len(data) // unit * unit]
    shape = tuple(-1 if size is None else size for size in field.shape)
    if 0 in shape:
        return np.empty(tuple(0 if size is None else size for size in field.shape), field.dtype)
    return widened(np.frombuffer(whole, field.dtype).reshape(shape))


def _listed(array: NDArray[Any]) -> Any:
    """Return numbers and text as JSON has them; complex numbers as text."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "replace").tolist()
    return (array.astype(str) if array.dtype.kind == "c" else array).tolist()


def _bytes(store: SampleStore, field: Field, index: int) -> bytes:
    return read_values(store, field.name, np.array([index])).view(0).tobytes()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _document(text: str) -> Any:
    try:
        return parse_json(text.encode())
    except ValueError:
        return text


def _cut(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3]}..."
