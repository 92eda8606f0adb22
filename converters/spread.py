"""Rows at even distances, for looks at a part of a store."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["spread_rows"]


def spread_rows(count: int, most: int) -> NDArray[np.int64]:
    """
    Return at most ``most`` (2 or more) of ``count`` rows, from the first to the last.

    >>> spread_rows(10, 4).tolist(), spread_rows(2, 4).tolist()
    ([0, 3, 6, 9], [0, 1])
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.arange(most, dtype=np.int64) * (count - 1) // (most - 1)
