"""The rows that all libraries pack: the ten digits of a row's number, as token ids of 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["BATCH", "LENGTH", "blocks", "numbers_of"]

BATCH = 256
LENGTH = 10
_BLOCK = 100_000  # rows that are made at a time
_TENS = 10 ** np.arange(LENGTH - 1, -1, -1, dtype=np.int64)
_ZERO = ord("0")


def blocks(count: int) -> Iterator[np.ndarray[Any, np.dtype[np.uint16]]]:
    """Give all rows, many at a time: uint16 of shape ``(rows, 10)``."""
    for start in range(0, count, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, count), dtype=np.int64)
        yield (numbers[:, None] // _TENS % 10 + _ZERO).astype(np.uint16)


def numbers_of(rows: Any) -> list[int]:
    """Return the numbers of a batch of rows, an array or tensor of shape ``(rows, 10)``."""
    numbers: list[int] = ((np.asarray(rows).astype(np.int64) - _ZERO) @ _TENS).tolist()
    return numbers
