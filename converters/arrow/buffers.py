"""The buffers of Arrow arrays: checked, and as bytes, starts and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.extra import pyarrow

__all__ = ["python_values", "sound", "value_bytes"]


def sound(batch: Any, field: str) -> Any:
    """
    Return a column with checked offsets: in a damaged file they lead anywhere, and Arrow follows them.

    Arrow's exceptions are left to the caller. Strings are treated as bytes: invalid UTF-8 is found later.
    """
    arrow = pyarrow("to read tables")
    column = batch.column(field)
    whole = column.dictionary if arrow.types.is_dictionary(column.type) else column
    for is_, plain in (
        (arrow.types.is_string, arrow.binary()),
        (arrow.types.is_large_string, arrow.large_binary()),
        (arrow.types.is_string_view, arrow.binary_view()),
    ):
        if is_(whole.type):
            whole = whole.view(plain)
    whole.validate(full=True)
    return column


def value_bytes(arrow: Any, column: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """
    Return the bytes of strings, and start and size of each; without a copy unless Arrow keeps them in an odd way.
    """
    column = column.cast(arrow.large_binary())
    _, offsets, values = column.buffers()
    if len(column) == 0:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    edges = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)[edges[0] : edges[-1]]
    return data, edges[:-1] - edges[0], np.diff(edges)


def python_values(array: Any) -> list[Any]:
    """Return the values as Python objects; bytes of strings that are not UTF-8 become surrogates, as in file names."""
    arrow = pyarrow("to read tables")
    for is_, plain in (
        (arrow.types.is_string, arrow.binary()),
        (arrow.types.is_large_string, arrow.large_binary()),
        (arrow.types.is_string_view, arrow.binary_view()),
    ):
        if is_(array.type):
            values = array.view(plain).to_pylist()
            return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    return list(array.to_pylist())
