"""COLUMN_KINDS: the ways in which a column keeps pictures; which of them the first values of a column speak for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastio.converters.sources.column_kinds import base64_pictures
from fastio.converters.sources.column_kinds.kind import ColumnKind, field_of_bytes
from fastio.types.schema import Field

__all__ = ["COLUMN_KINDS", "ColumnKind", "column_kind", "elements_in", "field_of_values", "holding"]

# A new way is one file and its line here. Detection, packing, reports, errors and unpacking learn of it from here.
COLUMN_KINDS: dict[str, ColumnKind] = {each.name: each for each in (base64_pictures.KIND,)}


def elements_in(values: Sequence[Any]) -> list[Any] | None:
    """
    Return the elements that are not null of the first values of a column of lists; None if one of them is no list.

    >>> elements_in([["a"], [], ["b", None]]), elements_in(["a", ["b"]])
    (['a', 'b'], None)
    """
    if not all(isinstance(value, list) for value in values):
        return None
    return [element for value in values for element in value if element is not None]


def column_kind(values: Sequence[Any]) -> ColumnKind | None:
    """
    Return the kind that at least half of the first values of a column, or of the elements of its lists, are of; None if
    they are of none.
    """
    values = elements_in(values) or values
    for each in COLUMN_KINDS.values():
        if values and 2 * sum(map(each.recognises, values)) >= len(values):
            return each
    return None


def holding(value: Any) -> str:
    """Return what one value holds, in the words of its kind; "" if it is of none."""
    return next((each.what for each in COLUMN_KINDS.values() if each.recognises(value)), "")


def field_of_values(name: str, kind: ColumnKind, values: Sequence[Any]) -> Field:
    """Return the field for a column of this kind, by the first value that is of it; of lists, one of lists."""
    elements = elements_in(values)
    if elements is not None:
        return field_of_values(name, kind, elements).listed()
    first = next((value for value in values if kind.recognises(value)), None)
    return field_of_bytes(name, None if first is None else kind.decode(first))
