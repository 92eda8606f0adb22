"""Which field a column of an Arrow type becomes, when the user does not say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from fastio._native import image_kind
from fastio.converters.extra import pyarrow
from fastio.errors import SourceError
from fastio.types.field_types import FIELD_TYPES
from fastio.types.picture_kinds import PNG_SIGNATURE, UNKNOWN
from fastio.types.schema import COLUMN, RAGGED, RAW, Field

__all__ = ["array_type", "field_by_type", "is_bytes", "is_picture_struct", "may_hold_pictures", "plain_type"]

_MASKS: Final = re.compile(r"(?:.*_)?(?:masks?|annotations?|segmentations?)\Z")
# Where Arrow and NumPy name a type differently. pyarrow's own answer, to_pandas_dtype(), needed pandas once (in 18).
_FLOATS: Final = {"halffloat": "float16", "float": "float32", "double": "float64"}
_PNG_DEPTH: Final = 24  # where a PNG says how many bits a number has


def field_by_type(name: str, type_: Any, feature: Any, first: Callable[[], bytes | None]) -> Field:
    """
    Return the field called ``name`` for a column of this Arrow type.

    ``feature`` is what Hugging Face ``datasets`` says of it, None if nothing. ``first`` returns the first value of a
    column of bytes: its first bytes tell pictures from other bytes. Raises SourceError, in words that follow the
    column's name, for types that no field can hold.

    * numbers and booleans: a column of that dtype; durations: int64 in their unit
    * strings, dates, times and decimals: text, as Arrow writes them (ISO 8601; every digit)
    * lists of one length: an array; lists of numbers or of such lists: a ragged array; other lists, structs and maps:
      JSON
    * bytes, and structs of bytes and path: pictures (a mask, if the name says so) or bytes
    """
    arrow, declared = pyarrow("to read tables"), _declared_array(feature)
    plain = plain_type(type_)
    if is_bytes(plain):
        return _of_bytes(name, feature, first())
    if declared is not None:
        return Field(name, RAW, declared[0], declared[1])
    if _is_text(arrow, plain):
        return Field(name, *FIELD_TYPES["text"])
    if arrow.types.is_duration(plain):
        return Field(name, *FIELD_TYPES["int"])
    array = array_type(plain)
    if array is not None and None not in array[1][1:]:
        dtype, shape = array
        return Field(name, COLUMN if not shape else RAGGED if None in shape else RAW, dtype, shape)
    if arrow.types.is_null(plain):
        raise SourceError("holds nothing but nulls")
    unfit = _not_json(arrow, plain)
    if unfit is not None:
        raise SourceError(f"is {plain}, and {unfit} in it fits no field: name the parts you need with --field")
    return Field(name, *FIELD_TYPES["json"])


def plain_type(type_: Any) -> Any:
    """Return the type in which the values of dictionaries, run-end encoding and extension types are kept."""
    arrow = pyarrow("to read tables")
    while True:
        if isinstance(type_, arrow.FixedShapeTensorType):
            return type_
        if isinstance(type_, arrow.BaseExtensionType):
            type_ = type_.storage_type
        elif arrow.types.is_dictionary(type_) or arrow.types.is_run_end_encoded(type_):
            type_ = type_.value_type
        else:
            return type_


def is_picture_struct(type_: Any) -> bool:
    """Return whether this is what Hugging Face ``datasets`` keeps of a picture or a sound: its bytes and its path."""
    types = pyarrow("to read tables").types
    return bool(types.is_struct(type_)) and {"bytes", "path"} == {part.name for part in type_}


def is_bytes(type_: Any) -> bool:
    """Return whether values are bytes, or structs of bytes and path."""
    types, plain = pyarrow("to read tables").types, plain_type(type_)
    checks = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(is_(plain) for is_ in (*checks, is_picture_struct))


def may_hold_pictures(type_: Any) -> bool:
    """Return whether values of this type, or parts of them, are bytes or strings."""
    types, plain = pyarrow("to read tables").types, plain_type(type_)
    if types.is_map(plain):
        return may_hold_pictures(plain.key_type) or may_hold_pictures(plain.item_type)
    if types.is_struct(plain):
        return any(may_hold_pictures(part.type) for part in plain)
    if hasattr(plain, "value_type"):
        return may_hold_pictures(plain.value_type)
    return is_bytes(plain) or any(is_(plain) for is_ in (types.is_string, types.is_large_string, types.is_string_view))


def array_type(type_: Any) -> tuple[str, tuple[int | None, ...]] | None:
    """Return dtype and shape of (lists of) numbers, with None for lists of any length; None for anything else."""
    arrow, shape = pyarrow("to read tables"), list[int | None]()
    if isinstance(type_, arrow.FixedShapeTensorType):
        in_order = type_.permutation is None or list(type_.permutation) == sorted(type_.permutation)
        if not in_order:
            return None
        shape, type_ = list(type_.shape), type_.value_type
    while not _is_number(arrow, type_):
        if arrow.types.is_fixed_size_list(type_):
            shape.append(type_.list_size)
        elif _is_list(arrow, type_):
            shape.append(None)
        else:
            return None
        type_ = plain_type(type_.value_type)
    return np.dtype(_FLOATS.get(str(type_), str(type_))).newbyteorder("<").str, tuple(shape)


def _declared_array(feature: Any) -> tuple[str, tuple[int, ...]] | None:
    """What ``datasets`` says of an Array2D and the like, whose lists have no lengths in Arrow."""
    if not isinstance(feature, Mapping) or not re.match(r"Array[2-5]D\Z", str(feature.get("_type"))):
        return None
    shape = feature.get("shape")
    if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        return None
    return np.dtype(str(feature.get("dtype"))).newbyteorder("<").str, tuple(shape)


def _of_bytes(name: str, feature: Any, first: bytes | None) -> Field:
    declared = feature.get("_type") if isinstance(feature, Mapping) else None
    is_picture = first is not None and image_kind(np.frombuffer(first, np.uint8)) != UNKNOWN
    if declared != "Image" and not is_picture:
        return Field(name, *FIELD_TYPES["bytes"])
    if not _MASKS.match(name):
        return Field(name, *FIELD_TYPES["image"])
    is_deep = first is not None and first.startswith(PNG_SIGNATURE) and first[_PNG_DEPTH : _PNG_DEPTH + 1] == b"\x10"
    return Field(name, *FIELD_TYPES["mask16" if is_deep else "mask"])


def _is_text(arrow: Any, type_: Any) -> bool:
    types = arrow.types
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_decimal)
    return any(is_(type_) for is_ in (*checks, types.is_timestamp, types.is_date, types.is_time))


def _is_number(arrow: Any, type_: Any) -> bool:
    types = arrow.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_))


def _is_list(arrow: Any, type_: Any) -> bool:
    types = arrow.types
    return any(is_(type_) for is_ in (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view))


def _not_json(arrow: Any, type_: Any) -> Any:
    """A type in this one whose values JSON does not have; None if there is none."""
    plain, types = plain_type(type_), arrow.types
    strings = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    if _is_number(arrow, plain) or any(is_(plain) for is_ in strings):
        return None
    if types.is_map(plain):
        return _not_json(arrow, plain.key_type) or _not_json(arrow, plain.item_type)
    if types.is_struct(plain):
        return next((unfit for part in plain if (unfit := _not_json(arrow, part.type)) is not None), None)
    if _is_list(arrow, plain) or types.is_fixed_size_list(plain):
        return _not_json(arrow, plain.value_type)
    return plain
