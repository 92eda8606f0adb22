"""Columns of a store: those that it has, those that all pictures and token ids have, and expressions over them."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.form import LABEL
from fastio.dataset.row_reader import RowReader, label_values
from fastio.store.index.elements import Elements
from fastio.store.protocol import SampleStore
from fastio.types.expression import ColumnValues, Expression

__all__ = ["SIDES", "matching", "stored_lengths"]

SIDES = ("height", "width")  # columns that all pictures have, in the order of dataset.sizes()
_ONE_VALUE = "biufUS"  # kinds of dtypes


def matching(store: SampleStore, expression: str, *, reader: RowReader) -> NDArray[np.bool_]:
    """
    Return for which samples an expression is true, ``(n,)``; ``reader`` reads the main field. See
    ``FastDataset.where``.
    """
    parsed = Expression(expression, where=store.path)
    return parsed.mask(len(store), partial(_values_of, store, reader), _names(store, reader))


def _names(store: SampleStore, reader: RowReader) -> list[str]:
    """Return the columns that expressions may name: those of the store with one value a sample, and what all have."""
    columns = (each for each in store.schema.columns if not each.shape and np.dtype(each.dtype).kind in _ONE_VALUE)
    has_sides = (reader.is_picture or reader.is_mask) and not isinstance(reader.store, Elements)
    sides = SIDES if has_sides else ()
    lengths = ("length",) if reader.field.traits.is_tokens and not isinstance(reader.store, Elements) else ()
    return list(dict.fromkeys((*(each.name for each in columns), *sides, *lengths, "key", "size_bytes")))


def _values_of(store: SampleStore, reader: RowReader, name: str) -> ColumnValues:
    """Return the values of a column of ``_names``."""
    if name in store.schema:
        return _stored(store, name)
    if name in SIDES:
        return ColumnValues(reader.sizes()[:, SIDES.index(name)])
    if name == "length":
        return ColumnValues(stored_lengths(store, reader.field.name))
    if name == "key":
        return ColumnValues(store.keys(np.arange(len(store), dtype=np.int64)))
    total = np.zeros(len(store), np.int64)
    for field in store.schema.payload:
        total += store.value_bytes(field.name)
    return ColumnValues(total)


def _stored(store: SampleStore, name: str) -> ColumnValues:
    """Return a column of the store, with the names of its classes."""
    values = store.column(name)
    if values.dtype.kind in "US":
        return ColumnValues(np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values)
    if name == LABEL:
        names = store.metadata.get("classes")
        values = label_values(values, where=f"{store.path}: column {LABEL!r}")
    else:
        names = (store.metadata.get("field_classes") or {}).get(name)
    return ColumnValues(values, [str(each) for each in names] if names else None)


def stored_lengths(store: SampleStore, field: str) -> NDArray[np.int64]:
    """
    Return the length of every sample from the index alone, int64: token ids, rows of a ragged array, or for any other
    field, bytes as stored.

    The length of text is in bytes of UTF-8, not characters.
    """
    sizes = store.value_bytes(field)
    unit_bytes = store.schema[field].unit_bytes
    return sizes if unit_bytes <= 1 else sizes // unit_bytes
