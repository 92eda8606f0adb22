"""Turns one column of Arrow arrays into documents, without a Python object for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio.converters.arrow.buffers import sound, value_bytes
from fastio.converters.extra import pyarrow
from fastio.converters.text.documents import Documents, TextOptions
from fastio.errors import SourceError

__all__ = ["column_documents", "kind_of", "known_column", "other_ways"]

_CHATS = ("messages", "conversations", "conversation", "dialog")  # what columns of lists of turns are called


def kind_of(place: str, schema: Any, field: str) -> Literal["text", "ids"]:
    """Return what a column holds, by its type. Raises SourceError if it is neither text nor ids."""
    known_column(place, schema, field, option="--text-field")
    types = pyarrow("to read tables").types
    kind = schema.field(field).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if any(is_(kind) for is_ in (types.is_string, types.is_large_string, types.is_string_view)):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "text"
    is_list = any(is_(kind) for is_ in (types.is_list, types.is_large_list, types.is_fixed_size_list))
    if is_list and types.is_integer(kind.value_type):
        return "ids"
    raise SourceError(
        f"{place}: column {field!r} is {kind}, expected strings or lists of integers: {other_ways(field, schema.names)}"
    )


def known_column(place: str, schema: Any, field: str, *, option: str) -> None:
    """Raise SourceError if a file has no column of this name, or several."""
    count = schema.names.count(field)
    if count > 1:
        raise SourceError(f"{place}: has {count} columns named {field!r}, so it is unclear which one counts")
    if not count:
        columns = ", ".join(f"{each.name!r} ({each.type})" for each in schema)
        advice = other_ways(field, schema.names) if option == "--text-field" else f"name another with {option}"
        raise SourceError(f"{place}: has no column {field!r}, only {columns}: {advice}")


def other_ways(field: str, names: Sequence[str]) -> str:
    """Return what to type for columns of which none is text, or not ``field``."""
    chat = next((name for name in (field, *_CHATS) if name in names), "")
    if chat:
        packs = f"--field {chat}={chat} keeps it as JSON, chats are not tokenized"
    else:
        packs = f"--field packs columns as fields, as in --field {names[0].lower()}={names[0]}"
    return f"{packs}; --text-field names another column of text"


def column_documents(batch: Any, options: TextOptions, *, key: str, row: int) -> tuple[Documents, dict[int, str]]:
    """
    Return the rows of a batch, the first of which is number ``row``, and what is wrong with some of them, by
    position.
    """
    field = options.text_field or "text"
    column = sound(batch, field)
    arrow = pyarrow("to read tables")
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_ids = kind_of(key, batch.schema, field) == "ids"
    data, starts, sizes = _ids(arrow, column) if is_ids else value_bytes(arrow, column)
    problems = {int(i): f"has null in the column {field!r}" for i in np.flatnonzero(_nulls(column))}
    if is_ids:
        for i in np.flatnonzero(_inner_nulls(column)).tolist():
            problems.setdefault(i, f"has null among the ids of the column {field!r}")
    for i in np.flatnonzero(sizes > options.max_document_bytes).tolist():
        problems[i] = options.too_long
    keys = [f"{key}:{number}" for number in range(row, row + len(column))]
    return Documents(keys, data, starts, sizes, None, (), 0), problems


def _ids(arrow: Any, column: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Ids as int64, and where each document's lie, in bytes. Above int64 they become its highest, which is no id."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = column.flatten().fill_null(0)
    if flat.type == arrow.uint64():
        values = np.minimum(flat.to_numpy(zero_copy_only=False), np.uint64(2**63 - 1)).astype(np.int64)
    else:
        values = flat.cast(arrow.int64()).to_numpy(zero_copy_only=False)
    sizes = lengths * 8
    return np.ascontiguousarray(values).view(np.uint8), np.cumsum(sizes) - sizes, sizes


def _nulls(column: Any) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _inner_nulls(column: Any) -> NDArray[np.bool_]:
    """Which lists have a null in them."""
    flat = column.flatten()
    bad = np.zeros(len(column), bool)
    if flat.null_count:
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(len(column)), lengths)
        bad[owners[flat.is_null().to_numpy(zero_copy_only=False)]] = True
    return bad
