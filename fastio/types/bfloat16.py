"""
bfloat16, the upper half of a float32, which NumPy lacks: stored and handled as its two bytes, NumPy's ``|V2``.

That is what ``np.save`` writes of arrays of the package ml_dtypes, and what nobody takes for integers by accident.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BFLOAT16", "dtype_name", "is_bfloat16", "rounded", "widened"]

BFLOAT16: Final = "|V2"  # of fields and .npy files

_QUIET = 0x40  # the bit that keeps a NaN one without its lower half


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether values are bfloat16: two bytes without a meaning to NumPy, or the dtype of ml_dtypes."""
    return dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None and dtype.subdtype is None


def dtype_name(dtype: str | np.dtype[Any]) -> str:
    """
    Return the name of a dtype in the types of fields.

    >>> dtype_name("|V2"), dtype_name("<f2")
    ('bfloat16', 'float16')
    """
    known = np.dtype(dtype)
    return "bfloat16" if is_bfloat16(known) else known.name


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """
    Return bfloat16 as float32, which holds each of them exactly; arrays of other dtypes as they are.

    >>> widened(rounded(np.array([1.0, -2.5], np.float32))).tolist()
    [1.0, -2.5]
    """
    if not is_bfloat16(values.dtype):
        return values
    bits = np.ascontiguousarray(values).view(np.uint16).reshape(values.shape)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: NDArray[np.float32]) -> NDArray[Any]:
    """
    Return float32 as bfloat16, rounded to the nearest, ties to even; beyond the largest, to an infinity. What
    ``widened`` returned becomes what it was, each NaN included.
    """
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    near = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16  # of a NaN it means nothing
    upper = bits >> 16
    kept = np.where(np.isnan(values), np.where(upper & 0x7F, upper, upper | _QUIET), near).astype("<u2")
    return np.ascontiguousarray(kept).view(BFLOAT16).reshape(values.shape)
