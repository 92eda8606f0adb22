"""Draws samples by weight, with replacement, as a pure function of seed and epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native

__all__ = ["WeightedDraw"]

_MANTISSA = 53


class WeightedDraw:
    """
    Draws ``samples_per_epoch`` positions with the probabilities of their weights, like WeightedRandomSampler.

    ``weights`` is float64 ``(n,)``. Raises ValueError if a weight is negative or not finite, or all are zero. The
    numbers come from Philox, keyed by seed and epoch: all ranks, and a resumed training, draw the same.
    """

    def __init__(self, weights: NDArray[np.float64], *, samples_per_epoch: int, seed: int) -> None:
        wrong = ~(np.isfinite(weights) & (weights >= 0))
        if wrong.any():
            at = int(wrong.argmax())
            raise ValueError(f"weights[{at}] is {weights[at]}: expected finite numbers of at least 0")
        if not weights.any():
            raise ValueError(
                f"weights: all {len(weights)} are 0, so nothing can be drawn: give some samples a positive weight"
            )
        self._ends = np.cumsum(weights / weights.max())
        self._last = int(np.flatnonzero(weights)[-1])
        self._checksum = _native.crc32(weights)
        self._count = samples_per_epoch
        self._seed = seed

    def count(self, epoch: int) -> int:
        """Return the number of positions, the same in every epoch."""
        return self._count

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the positions of an epoch in the order in which they are drawn."""
        raw = np.random.Philox(key=np.array([self._seed, epoch], np.uint64)).random_raw(self._count)
        uniform = (raw >> np.uint64(64 - _MANTISSA)) * 2.0**-_MANTISSA
        drawn: NDArray[np.int64] = np.searchsorted(self._ends, uniform * self._ends[-1], side="right")
        return drawn.clip(max=self._last)

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the draw."""
        return {
            "samples": len(self._ends),
            "weights_crc32": self._checksum,
            "samples_per_epoch": self._count,
            "seed": self._seed,
        }
