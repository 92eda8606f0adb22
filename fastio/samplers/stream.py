"""MixtureStream: the endless stream of a mixture, whose weights may change at given samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.position import whole
from fastio.samplers.shares import ExactShares

__all__ = ["MixtureStream", "Stretch"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """From sample ``start`` of the stream on, member i gives ``weights[i]`` of every ``sum(weights)`` samples."""

    start: int
    weights: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """Return plain values for a state."""
        return [self.start, list(self.weights)]

    @classmethod
    def from_json(cls, saved: object, *, members: int) -> Stretch:
        """Restore a stretch from a state. Raises ValueError if it is none for so many members."""
        if isinstance(saved, Sequence) and len(saved) == 2 and isinstance(saved[1], Sequence):
            weights = tuple(whole("weight", weight, "0 or more in the state", least=0) for weight in saved[1])
            if len(weights) == members and any(weights):
                return cls(whole("start", saved[0], "0 or more in the state", least=0), weights)
        raise ValueError(f"stretch={saved!r} in the state: expected [start, {members} weights]: the state is damaged")


class MixtureStream:
    """
    Which member gives sample n, for ``stretches`` that ascend and of which the first starts at 0.

    A member's share of the first n samples is the sum over the stretches, exactly; what it is behind or ahead when the
    weights change is made up for under the new ones.
    """

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = tuple(stretches)
        self._starts = [stretch.start for stretch in stretches]
        self._shares: list[ExactShares] = []
        self._before: list[list[int]] = []  # what each member has given when a stretch starts
        due = [Fraction(0)] * len(stretches[0].weights)
        counts = [0] * len(due)
        for number, stretch in enumerate(self.stretches):
            if number:
                last = self.stretches[number - 1]
                length = stretch.start - last.start
                counts = [had + new for had, new in zip(counts, self._shares[-1].counts(length), strict=True)]
                given = Fraction(length, sum(last.weights))
                due = [had + given * weight for had, weight in zip(due, last.weights, strict=True)]
            owed = [share - count for share, count in zip(due, counts, strict=True)]
            self._shares.append(ExactShares(stretch.weights, owed))
            self._before.append(counts)

    def counts(self, count: int) -> list[int]:
        """Return how many of the first ``count`` samples each member gives."""
        number = bisect_right(self._starts, count) - 1
        new = self._shares[number].counts(count - self._starts[number])
        return [had + more for had, more in zip(self._before[number], new, strict=True)]

    def members(self, start: int, stop: int) -> NDArray[np.uint16]:
        """Return the member that gives each sample from number ``start`` up to ``stop``."""
        parts = [
            self._shares[number].members(first - self._starts[number], last - self._starts[number])
            for number, first, last in self.pieces(start, stop)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint16), *parts])

    def pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the stretches within ``start`` to ``stop``: the number of each, and from where to where it lasts."""
        ends = [*self._starts[1:], max(stop, self._starts[-1])]
        bounds = [
            (number, max(start, first), min(stop, end))
            for number, (first, end) in enumerate(zip(self._starts, ends, strict=True))
        ]
        return [piece for piece in bounds if piece[1] < piece[2]]
