"""The random numbers of transforms, as a pure function of seed, epoch and sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio import _native

__all__ = ["uniform"]


def uniform(indices: NDArray[np.int64], columns: int, *, seed: int, epoch: int) -> NDArray[np.float64]:
    """
    ``(n, columns)`` numbers in [0, 1); one depends on seed, epoch, its index and its column alone.

    Hence a sample's crop is the same whatever the threads, the ranks, the batch it is in and the place of a resume.
    """
    numbers = np.empty((len(indices), columns), np.float64)
    if numbers.size:
        _native.philox(seed, epoch, np.ascontiguousarray(indices), numbers)
    return numbers
