"""Split: how samples of too many tokens are divided into parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Split"]


@dataclass(frozen=True, slots=True)
class Split:
    """
    Parts of at most ``size`` tokens, each of which begins with the last ``overlap`` tokens of the one before: of 0 to
    ``size - 1``. A sample of up to ``size`` tokens is one part.
    """

    size: int
    overlap: int = 0

    @property
    def stride(self) -> int:
        """By how many tokens parts begin behind each other."""
        return self.size - self.overlap

    def counts(self, lengths: NDArray[np.int32]) -> NDArray[np.int64]:
        """
        Return how many parts samples of these lengths have.

        >>> Split(8, 2).counts(np.array([0, 8, 9, 14, 15], np.int32)).tolist()
        [1, 1, 2, 2, 3]
        """
        rest = np.maximum(lengths.astype(np.int64) - self.size, 0)
        return 1 + -(-rest // self.stride)

    def bounds(
        self, lengths: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return the first token of parts with these numbers, and how many tokens they have.

        >>> [each.tolist() for each in Split(8, 2).bounds(np.array([15, 15, 15]), np.array([0, 1, 2]))]
        [[0, 6, 12], [8, 8, 3]]
        """
        firsts = numbers * self.stride
        return firsts, np.minimum(lengths - firsts, self.size)
