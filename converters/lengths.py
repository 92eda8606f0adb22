"""Statistics on the lengths of a store's samples, and a histogram whose bins double in width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["length_histogram"]


def length_histogram(lengths: NDArray[np.int64]) -> list[dict[str, Any]]:
    """
    Count the lengths in 0, 1, 2..3, 4..7, 8..15, ... from the shortest to the longest.

    >>> length_histogram(np.array([1, 5, 6]))
    [{'from': 1, 'to': 1, 'samples': 1}, {'from': 2, 'to': 3, 'samples': 0}, {'from': 4, 'to': 7, 'samples': 2}]
    """
    if len(lengths) == 0:
        return []
    # The bit length of a number, 0 for 0: exact, where a logarithm is not at its powers of two.
    bits = np.frexp(lengths.astype(np.float64))[1]
    counts = np.bincount(bits)
    return [
        {"from": 1 << (bit - 1) if bit else 0, "to": (1 << bit) - 1, "samples": int(counts[bit])}
        for bit in range(int(bits.min()), len(counts))
    ]
