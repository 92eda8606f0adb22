"""Cuts a sequence of samples into pieces of limited bytes and count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cut"]


def cut(sizes: NDArray[np.int64], max_bytes: int, max_samples: int) -> list[range]:
    """
    Return ranges that cover all of ``sizes`` in order.

    Each holds at most ``max_samples`` values of at most ``max_bytes`` together; a single larger value gets a range of
    its own.

    >>> cut(np.array([3, 3, 9, 1]), 6, 10)
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    ends = np.cumsum(sizes)
    pieces, start, done = [], 0, 0
    while start < len(sizes):
        fitting = int(np.searchsorted(ends, done + max_bytes, side="right"))
        stop = max(start + 1, min(fitting, start + max_samples))
        pieces.append(range(start, stop))
        start, done = stop, int(ends[stop - 1])
    return pieces
