"""Cuts a sequence of samples into pieces of limited bytes and count; sizes that are too large to be true or to read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio.machine import available_memory

__all__ = ["LARGE_BYTES", "check_memory", "cut", "size_problem"]

LARGE_BYTES = 64 << 20  # a sample of more is looked at before it is read
_MOST_RATIO = 1032  # of deflate: 258 bytes of content take at least 2 bits


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


def size_problem(size_bytes: int, stored_bytes: int) -> str:
    """
    Return what is wrong with a value of ``size_bytes`` of which only ``stored_bytes`` exist, in words that follow its
    name; "" if they may hold it.

    Files with holes, and arrays that were never written, claim any size.

    >>> size_problem(6 << 30, 4096)
    'claims 6,442,450,944 bytes, but 4,096 cannot hold them'
    """
    if size_bytes <= stored_bytes * _MOST_RATIO:
        return ""
    return f"claims {size_bytes:,} bytes, but {stored_bytes:,} cannot hold them"


def check_memory(size_bytes: int) -> None:
    """Raise MemoryError for more bytes than are free: Linux would promise them, and kill a process later."""
    if size_bytes > LARGE_BYTES and 0 < available_memory() < size_bytes:
        raise MemoryError
