"""Follows a path through the structs of a column, and through the lists that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastio.converters.arrow.values import plain_array
from fastio.converters.extra import pyarrow

__all__ = ["part_at"]


def part_at(batch: Any, path: Sequence[str]) -> Any:
    """Return the values at a path: a part of a struct, or of each struct in lists, such as ``("objects", "bbox")``."""
    array = batch.column(path[0])
    for part in path[1:]:
        array = _part(plain_array(array), part)
    return array


def _part(array: Any, part: str) -> Any:
    arrow, compute = pyarrow("to read tables"), pyarrow("to read tables", "pyarrow.compute")
    if arrow.types.is_struct(array.type):
        return compute.struct_field(array, part)
    inner = _part(plain_array(array.flatten()), part)
    lengths = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    edges = arrow.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    return arrow.ListArray.from_arrays(edges, inner, mask=array.is_null())
