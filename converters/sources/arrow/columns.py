"""The columns of a Parquet or Arrow file: their types, their first values, and which may hold pictures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastio.converters.sources.arrow.reading import plain_array, python_values, reading, sound
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns, is_empty
from fastio.converters.sources.optional import pyarrow
from fastio.errors import SourceError

__all__ = [
    "columns_of",
    "is_bytes",
    "is_list",
    "is_list_of_bytes",
    "is_picture_struct",
    "is_text",
    "is_text_or_list",
    "may_hold_pictures",
    "plain_type",
    "type_at",
]

_ROWS = 64  # that are looked at at once


def columns_of(reader: str, places: Mapping[str, str], schema: Any, without: Collection[str]) -> SourceColumns:
    """
    Return the columns of a table; ``places`` says which file to look into for each, ``schema`` has their types.

    Texts may name files in the folder of the first file.
    """

    def first_values(name: str) -> list[Any]:
        count = schema.names.count(name)  # 0: of a later file
        may_hold = count == 0 or (count == 1 and may_hold_pictures(schema.field(name).type))
        return _first_values(reader, places[name], name) if may_hold else []

    place = next(iter(places.values()))
    root = str(Path(place).parent)
    return SourceColumns(place, list(places), first_values, without, root=root, decodes=True, takes_lists=True)


def type_at(place: str, schema: Any, path: Sequence[str]) -> Any:
    """Return the type of a column, or of the part of its structs that ``path`` leads to; through lists too."""
    arrow = pyarrow("to read tables")
    type_, depth = plain_type(schema.field(path[0]).type), list[Any]()
    for part in path[1:]:
        while not arrow.types.is_struct(type_) and hasattr(type_, "value_type"):
            depth.append(type_)
            type_ = plain_type(type_.value_type)
        parts = {each.name: each.type for each in type_} if arrow.types.is_struct(type_) else {}
        if part not in parts:
            there = f"only {', '.join(map(repr, parts))}" if parts else f"it is {type_}"
            raise SourceError(f"{place}: column {'.'.join(path)!r}: there is no part {part!r}, {there}")
        type_ = plain_type(parts[part])
    for _ in depth:
        type_ = arrow.list_(type_)
    return type_


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


def is_list_of_bytes(type_: Any) -> bool:
    """Return whether values are lists of bytes, or of structs of bytes and path."""
    plain = plain_type(type_)
    return is_list(plain) and is_bytes(plain.value_type)


def is_text_or_list(type_: Any) -> bool:
    """Return whether values are texts, or lists of them."""
    plain = plain_type(type_)
    return is_text(plain.value_type if is_list(plain) else plain)


def is_text(type_: Any) -> bool:
    """Return whether values are texts."""
    types, plain = pyarrow("to read tables").types, plain_type(type_)
    return any(is_(plain) for is_ in (types.is_string, types.is_large_string, types.is_string_view))


def is_list(type_: Any) -> bool:
    """Return whether values are lists, in any of Arrow's ways to keep them."""
    types = pyarrow("to read tables").types
    of_any_length = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    return any(is_(type_) for is_ in (*of_any_length, types.is_fixed_size_list))


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


def _first_values(reader: str, place: str, name: str) -> list[Any]:
    """The first values in a column that are not empty."""
    found: list[Any] = []
    with reading(reader, place, [name]) as file:
        for batch in file.batches:
            column = plain_array(sound(batch, name))
            for start in range(0, len(column), _ROWS):
                with suppress(UnicodeDecodeError):  # a problem of its row
                    found += [each for each in python_values(column.slice(start, _ROWS)) if not is_empty(each)]
                if len(found) >= FIRST_VALUES:
                    return found
    return found
