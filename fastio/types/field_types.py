"""Field types as users write them: "image", "text", "float32[512]", "xywh", and the Field that each stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from fastio.errors import SchemaError
from fastio.types.bfloat16 import BFLOAT16, dtype_name
from fastio.types.schema import (
    ARRAY,
    BOX_ROLES,
    BYTES,
    COLUMN,
    IMAGE,
    JSON,
    LOSS,
    MASK,
    POINTS,
    RAGGED,
    RAW,
    TEXT,
    TOKENS,
    Field,
)

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
    "loss": (RAGGED, "<i4", (None,), LOSS),
    **{role: (RAGGED, "<f4", (None, 4), role) for role in BOX_ROLES},
}

# What types whose words take no sizes are, for whoever gives some.
_ANY_LENGTH: Final = "its values have any length already"
_ANY_ROWS: Final = "it is as many rows as a sample has already"
_NO_SIZES: Final[Mapping[str, str]] = {
    "image": "a list of any number of pictures is image[*]",
    "mask": "a list of masks is mask[*]; mask[3] is a mask whose pixels are colours",
    "mask16": "a list of masks is mask16[*]",
    "text": f"{_ANY_LENGTH}; a list of texts is text[*]",
    "json": f"{_ANY_LENGTH}, and may be lists, or null where one is missing",
    "bytes": f"{_ANY_LENGTH}; a list of values is bytes[*]",
    "tokens": f"{_ANY_LENGTH}; a list of sequences is tokens[*]",
    "tokens16": f"{_ANY_LENGTH}; a list of sequences is tokens16[*]",
    "label": "it is one whole number; several a sample are int64[3], for three, or int64[*]",
    "points": f"{_ANY_ROWS}; points[17] is 17 points a row",
    "loss": "it is as many runs as a sample has already",
    **dict.fromkeys(BOX_ROLES, _ANY_ROWS),
}

_ARRAY = re.compile(r"(?P<dtype>[a-z]+[0-9]*)(?:\[(?P<shape>[0-9*, ]*)\])?(?: (?P<word>column))?\Z")
_POINTS = re.compile(r"points\[([0-9]+)\]\Z")
_COLOURS = re.compile(r"mask\[([234])\]\Z")


def field_of(name: str, type_: FieldType) -> Field:
    """
    Return the field called ``name`` of a type that a user wrote.

    * a name in FIELD_TYPES: "image", "mask", "mask16" (16 bits), "text", "json", "bytes", "tokens" (32 bits),
      "tokens16", "label", "int", "float", "bool", "xyxy", "xywh", "cxcywh" (boxes), "points", "loss" (which token ids
      count, see ``fastio.types.runs``); also "points[17]" for 17 points an object, and "mask[3]" for masks whose pixels
      are colours
    * a NumPy dtype: "float32" is one number per sample (a column), "float32[512]" an array per sample,
      "float32[14] column" the same as a column (small arrays, all kept in memory), "int64[*]" or "float32[*,5]" a
      ragged array, "float16[16,*,*]" one with any sizes that differ; "bfloat16[768]" and so on, but no column
    * a picture, mask, text, bytes, token ids or array with "[*]" or "?" behind it: "image[*]" is a list of any number
      of pictures, "float32[*,4][*]" one of ragged arrays, "image?" a picture that may be missing
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
    if not isinstance(type_, Sequence):
        raise SchemaError(f"field {name!r}: expected a type by its name, such as {_own_word(type_)!r}, got {type_!r}")
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
    if field.is_list:
        return f"{type_of(field.element)}{'?' if field.is_optional else '[*]'}"
    if field.owner:
        return f"{type_of(replace(field, role=field.geometry))} per {field.owner}"
    for words, known in FIELD_TYPES.items():
        if field == Field(field.name, *known):
            return words
    dtype = dtype_name(field.dtype)
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
            raise SchemaError(
                f"field {name!r}: only rows can be per {owner}, as many as it has: int64[*], float32[*,4], boxes or "
                f"points; got {words!r}"
            )
        return replace(field, role=f"{field.geometry} per:{owner}".lstrip())
    if words in FIELD_TYPES:
        return Field(name, *FIELD_TYPES[words])
    of = words.removesuffix("[*]")
    if words.endswith("?") or (of != words and (of in _NO_SIZES or of.endswith("]"))):
        return _list_of(name, words)
    points = _POINTS.match(words)
    if points is not None:
        return Field(name, RAGGED, "<f4", (None, int(points[1]), 2), POINTS)
    colours = _COLOURS.match(words)
    if colours is not None:
        return Field(name, MASK, "|u1", (None, None, int(colours[1])))
    match = _ARRAY.match(words)
    if match is None:
        raise _unknown(name, words)
    if match["shape"] is not None and match["dtype"] in _NO_SIZES:
        brackets = words.removeprefix(match["dtype"]).partition(" ")[0]
        raise SchemaError(f"field {name!r}: {match['dtype']} takes no {brackets}: {_NO_SIZES[match['dtype']]}")
    sizes = (match["shape"] or "").replace(" ", "")
    shape = tuple(None if size == "*" else int(size) for size in sizes.split(",")) if sizes else ()
    if match["word"] and None not in shape:
        return Field(name, COLUMN, _dtype(name, match["dtype"], words), shape)
    return _array(name, match["dtype"], shape, role="", words=words)


def _list_of(name: str, words: str) -> Field:
    """Return the field of lists that these words mean. Raises SchemaError for elements that are in no list."""
    is_optional = words.endswith("?")
    of = words.removesuffix("?" if is_optional else "[*]")
    element = _of_words(name, of)
    if element.traits.is_listable and not element.role:
        return element.listed(is_optional=is_optional)
    if of in _NO_SIZES and not is_optional:
        raise SchemaError(f"field {name!r}: {of} takes no [*]: {_NO_SIZES[of]}")
    what = "be missing" if is_optional else "be listed"
    raise SchemaError(
        f"field {name!r}: {of} cannot {what}: only pictures, masks, text, bytes, token ids and arrays (float32[512], "
        f"float32[*,4]) can; got {words!r}"
    )


def _array(name: str, dtype: str, shape: tuple[object, ...], *, role: str, words: str = "") -> Field:
    sizes: list[int | None] = []
    for size in shape:
        if size is not None and (isinstance(size, bool) or not isinstance(size, int)):
            raise SchemaError(f"field {name!r}: expected whole numbers or None in the shape, got {shape}")
        sizes.append(size)
    codec = ARRAY if None in sizes[1:] else RAGGED if None in sizes else RAW if sizes else COLUMN
    return Field(name, codec, _dtype(name, dtype, words or dtype), tuple(sizes), role)


def _dtype(name: str, dtype: str, words: str) -> str:
    if dtype in ("bfloat16", BFLOAT16):
        return BFLOAT16
    try:
        known = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        known = None
    if known is None or known.kind not in "biufc":
        raise _unknown(name, words)
    return known.newbyteorder("<").str


def _own_word(type_: object) -> str:
    """The word for a type of Python or NumPy, as people try it."""
    names = {str: "text", bytes: "bytes", dict: "json", list: "float32[*]", float: "float", int: "int", bool: "bool"}
    if isinstance(type_, type) and issubclass(type_, np.generic):
        return np.dtype(type_).name
    return names.get(type_, "image") if isinstance(type_, type) else "image"


def _unknown(name: str, words: str) -> SchemaError:
    return SchemaError(
        f"field {name!r}: expected a type such as {', '.join(FIELD_TYPES)}, float32, float32[512], float32[*,4], "
        f"int64[*] per boxes, image[*] or image?, got {words!r}"
    )
