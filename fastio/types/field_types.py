"""Field types as users write them: "image", "text", "float32[512]", "xywh", and the Field that each stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from fastio.errors import SchemaError
from fastio.types.schema import BOX_ROLES, BYTES, COLUMN, IMAGE, JSON, MASK, POINTS, RAGGED, RAW, TEXT, TOKENS, Field

__all__ = ["FIELD_TYPES", "FieldType", "field_of", "type_of"]

FieldType = str | Field | Sequence[object]

# The types with a name of their own, and what is kept of a field of that type: codec, dtype, shape, role.
FIELD_TYPES: Final[Mapping[str, tuple[str, str, tuple[int | None, ...], str]]] = {
    "image": (IMAGE, "|u1", (None, None, None), ""),
    "mask": (MASK, "|u1", (None, None), ""),
    "mask16": (MASK, "<u2", (None, None), ""),
    "text": (TEXT, "|u1", (None,), ""),
    "json": (JSON, "|u1", (None,), ""),
    "bytes": (BYTES, "|u1", (None,), ""),
    "tokens": (TOKENS, "<u4", (None,), ""),
    "tokens16": (TOKENS, "<u2", (None,), ""),
    "int": (COLUMN, "<i8", (), ""),
    "label": (COLUMN, "<i8", (), ""),
    "float": (COLUMN, "<f8", (), ""),
    "bool": (COLUMN, "|b1", (), ""),
    "points": (RAGGED, "<f4", (None, 2), POINTS),
    **{role: (RAGGED, "<f4", (None, 4), role) for role in BOX_ROLES},
}

_ARRAY = re.compile(r"(?P<dtype>[a-z]+[0-9]*)(?:\[(?P<shape>[0-9*, ]*)\])?(?: (?P<word>column))?\Z")
_POINTS = re.compile(r"points\[([0-9]+)\]\Z")
_COLOURS = re.compile(r"mask\[([234])\]\Z")


def field_of(name: str, type_: FieldType) -> Field:
    """
    Return the field called ``name`` of a type that a user wrote.

    * a name in FIELD_TYPES: "image", "mask", "mask16" (16 bits), "text", "json", "bytes", "tokens" (32 bits),
      "tokens16", "label", "int", "float", "bool", "xyxy", "xywh", "cxcywh" (boxes), "points"; also "points[17]" for
      17 points an object, and "mask[3]" for masks whose pixels are colours
    * a NumPy dtype: "float32" is one number per sample (a column), "float32[512]" an array per sample,
      "float32[14] column" the same as a column (small arrays, all kept in memory), "int64[*]" or "float32[*,5]" a
      ragged array
    * a ragged array, boxes or points "per boxes": its rows belong to those of the field "boxes", as in
      "int64[*] per boxes" or "points[17] per boxes"
    * a pair ``(dtype, shape)`` such as ``("float32", (512,))``, None in the shape for a size that differs, or a triple
      with a role (see ``Field``); or a Field, whose name must be this one

    >>> field_of("embedding", ("float32", (512,))) == field_of("embedding", "float32[512]")
    True
    >>> field_of("boxes", "xywh").shape, field_of("weight", "float32").is_column
    ((None, 4), True)

    Raises SchemaError for anything else.
    """
    if isinstance(type_, Field):
        if type_.name != name:
            raise SchemaError(f"field {name!r}: is described by a Field of the name {type_.name!r}")
        return type_
    if isinstance(type_, str):
        return _of_words(name, type_)
    if not 2 <= len(type_) <= 3 or not isinstance(type_[1], (tuple, list)):
        raise SchemaError(f"field {name!r}: expected a type such as 'image' or ('float32', (512,)), got {type_!r}")
    return _array(name, str(type_[0]), tuple(type_[1]), role="" if len(type_) == 2 else str(type_[2]))


@lru_cache(256)  # asked for every value that is encoded
def type_of(field: Field) -> str:
    """
    Return the words that ``field_of`` takes for this field.

    >>> type_of(field_of("boxes", "xyxy")), type_of(field_of("embedding", "float32[512]"))
    ('xyxy', 'float32[512]')
    """
    if field.owner:
        return f"{type_of(replace(field, role=field.geometry))} per {field.owner}"
    for words, known in FIELD_TYPES.items():
        if field == Field(field.name, *known):
            return words
    dtype = np.dtype(field.dtype).name
    shape = f"[{','.join('*' if size is None else str(size) for size in field.shape)}]" if field.shape else ""
    if field.is_column:
        return f"{dtype}{shape}{' column' if field.shape else ''}"
    if field.traits.is_mask:
        return f"mask[{field.shape[2]}]"
    if field.role == POINTS:
        return f"points[{field.shape[1]}]"
    return f"{dtype}{shape}"


def _of_words(name: str, words: str) -> Field:
    own_words, per, owner = words.partition(" per ")
    if per:
        field = _of_words(name, own_words)
        if not field.traits.is_ragged:
            raise _unknown(name, words)
        return replace(field, role=f"{field.geometry} per:{owner}".lstrip())
    if words in FIELD_TYPES:
        return Field(name, *FIELD_TYPES[words])
    points = _POINTS.match(words)
    if points is not None:
        return Field(name, RAGGED, "<f4", (None, int(points[1]), 2), POINTS)
    colours = _COLOURS.match(words)
    if colours is not None:
        return Field(name, MASK, "|u1", (None, None, int(colours[1])))
    match = _ARRAY.match(words)
    if match is None:
        raise _unknown(name, words)
    sizes = (match["shape"] or "").replace(" ", "")
    shape = tuple(None if size == "*" else int(size) for size in sizes.split(",")) if sizes else ()
    if match["word"] and None not in shape:
        return Field(name, COLUMN, _dtype(name, match["dtype"], words), shape)
    return _array(name, match["dtype"], shape, role="")


def _array(name: str, dtype: str, shape: tuple[object, ...], *, role: str) -> Field:
    sizes: list[int | None] = []
    for size in shape:
        if size is not None and (isinstance(size, bool) or not isinstance(size, int)):
            raise SchemaError(f"field {name!r}: expected whole numbers or None in the shape, got {shape}")
        sizes.append(size)
    codec = RAGGED if None in sizes else RAW if sizes else COLUMN
    return Field(name, codec, _dtype(name, dtype, dtype), tuple(sizes), role)


def _dtype(name: str, dtype: str, words: str) -> str:
    try:
        known = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        known = None
    if known is None or known.kind not in "biufc":
        raise _unknown(name, words)
    return known.newbyteorder("<").str


def _unknown(name: str, words: str) -> SchemaError:
    return SchemaError(
        f"field {name!r}: expected a type such as {', '.join(FIELD_TYPES)}, float32, float32[512], float32[*,4] or "
        f"int64[*] per boxes, got {words!r}"
    )
