"""The columns of a store in the dtypes that torch's default collate gives the numbers of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.form import LABEL
from fastio.dataset.row_reader import label_values
from fastio.store.sample_store import SampleStore

__all__ = ["column_values"]


def column_values(store: SampleStore, name: str) -> NDArray[Any]:
    """
    Return a column, ``(n, ...)``, whose elements as Python values are those of samples.

    Whole numbers become int64 (uint64 stays, where a number needs it) and floats float64, as in a batch of Python
    numbers. Bools, text, and arrays of any dtype stay as they are; bools in the column "label" count as numbers.
    """
    column = store.column(name)
    if name == LABEL and column.dtype.kind in "biuf":
        return label_values(column, where=f"{store.path}: column {name!r}")
    if column.ndim > 1 or column.dtype.kind not in "iuf":
        return column
    if column.dtype.kind == "f":
        return column.astype(np.float64, copy=False)
    needs_uint64 = column.dtype == np.uint64 and bool(column.size) and column.max() > np.iinfo(np.int64).max
    return column if needs_uint64 else column.astype(np.int64, copy=False)
