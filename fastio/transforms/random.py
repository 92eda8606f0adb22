"""The random numbers of transforms: a pure function of seed, epoch and sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio import _native

__all__ = ["uniform"]


def uniform(indices: NDArray[np.int64], columns: int, *, seed: int, epoch: int) -> NDArray[np.float64]:
    """
    Return ``(n, columns)`` numbers in [0, 1); each depends only on seed, epoch, its index and its column.

    So a sample's crop does not depend on threads, ranks, its batch or where a run was resumed.
    """
    numbers = np.empty((len(indices), columns), np.float64)
    if numbers.size:
        _native.philox(seed, epoch, np.ascontiguousarray(indices), numbers)
    return numbers
