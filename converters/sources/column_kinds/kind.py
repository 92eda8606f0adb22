"""ColumnKind: what a way to keep pictures in a column needs to become an entry of COLUMN_KINDS."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fastio._native import image_kind
from fastio.converters.fields.problems import list_problems
from fastio.types.field_types import FIELD_TYPES
from fastio.types.picture_kinds import PNG_SIGNATURE, UNKNOWN
from fastio.types.schema import Field

__all__ = ["ColumnKind", "begins_picture", "decoded", "decoded_elements", "field_of_bytes"]

_MASKS: Final = re.compile(r"(?:.*_)?(?:masks?|annotations?|segmentations?)\Z")
_PNG_DEPTH: Final = 24  # where a PNG says how many bits a number has


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnKind:
    """
    One way in which the values of a column stand for the bytes of files, such as pictures as base64 text.

    ``name`` is the entry in COLUMN_KINDS, and packed stores record it; ``what`` completes "the column holds ...".

    ``recognises`` looks at one value that is not empty: the first values of a column tell of which kind it is.
    ``decode`` returns the bytes that a value stands for, or raises ValueError in words that follow "a value that".
    ``encode`` returns a value for these bytes: ``fastio unpack`` writes the table with it.
    """

    name: str
    what: str
    recognises: Callable[[Any], bool]
    decode: Callable[[Any], bytes]
    encode: Callable[[bytes], Any]


def decoded(kind: ColumnKind, value: Any, where: str) -> tuple[bytes, str]:
    """Return the bytes that a value of the column ``where`` stands for, and one sentence if there are none."""
    if value is None or value == "":
        return b"", f"has nothing in the column {where!r}"
    try:
        return kind.decode(value), ""
    except ValueError as exc:
        return b"", f"has a value in the column {where!r} that {exc}"


def decoded_elements(kind: ColumnKind, field: Field, value: Any, where: str) -> tuple[list[bytes], str]:
    """
    Return the bytes that the elements of a list in the column ``where`` stand for, and one sentence if one of them
    stands for none; null is an empty list. ``field`` says whether the value is one that may be missing instead.
    """
    if value is None or (value == "" and field.is_optional):
        return [], ""
    if field.is_optional == isinstance(value, list):
        expected = "one value or none" if field.is_optional else "a list"
        return [], f"has {value!r:.60} in the column {where!r}, expected {expected}"
    found = [decoded(kind, each, where) for each in ([value] if field.is_optional else value)]
    problems = {i: problem for i, (_, problem) in enumerate(found) if problem}
    bad = list_problems(np.array([len(found)]), problems, is_optional=field.is_optional)
    return [data for data, _ in found], bad.get(0, "")


def begins_picture(data: bytes | bytearray | memoryview) -> bool:
    """Return whether bytes begin like a picture."""
    return image_kind(np.frombuffer(data, np.uint8)) != UNKNOWN


def field_of_bytes(name: str, first: bytes | None, *, is_picture: bool = False) -> Field:
    """
    Return the field for a column of bytes, by the first of them: pictures, masks if the name says so, or bytes.

    ``is_picture`` says that they are pictures, whatever they begin with.
    """
    if not is_picture and (first is None or not begins_picture(first)):
        return Field(name, *FIELD_TYPES["bytes"])
    if not _MASKS.match(name):
        return Field(name, *FIELD_TYPES["image"])
    is_deep = first is not None and first.startswith(PNG_SIGNATURE) and first[_PNG_DEPTH : _PNG_DEPTH + 1] == b"\x10"
    return Field(name, *FIELD_TYPES["mask16" if is_deep else "mask"])
