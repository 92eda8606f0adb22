"""A race: finds the fastest of several things, in rounds, on a machine that others use too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Race"]

T = TypeVar("T")

# How far below the leader's rate a runner may be and stay, after so many rounds; later rounds use the last value. On
# two cores shared with eight other programs, rates within one round differed by a factor of two for no other reason.
_TOLERANCES = (0.70, 0.50, 0.40, 0.25, 0.25, 0.15, 0.15, 0.08)
# Up to this round, a runner is judged by its best round: a slow one may have been anybody's fault.
_ROUNDS_OF_GRACE = 3


@dataclass
class Race(Generic[T]):
    """
    Runners, and the rates of each round, in which everyone left ran once.

    A slow phase of the machine slows a whole round down, so a rate counts relative to the round's median, and a
    runner by the median of its rounds. After each round, those too far behind drop out.
    """

    left: list[T]
    _rounds: list[dict[T, float]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return len(self._rounds)

    def add(self, rates: Sequence[float]) -> None:
        """Add a round: the rates of those that are left, in their order; each above 0."""
        self._rounds.append(dict(zip(self.left, rates, strict=True)))
        scores = self._scores()
        least = np.median(scores, axis=0).max() + math.log(1 - _TOLERANCES[min(self.rounds, len(_TOLERANCES)) - 1])
        judged = scores.max(axis=0) if self.rounds <= _ROUNDS_OF_GRACE else np.median(scores, axis=0)
        self.left = [runner for runner, score in zip(self.left, judged, strict=True) if score >= least]

    def ratios(self) -> dict[T, float]:
        """Return those that are left, best first, with their rates relative to the best."""
        scores = np.median(self._scores(), axis=0)
        ratios = dict(zip(self.left, np.exp(scores - scores.max()).tolist(), strict=True))
        return dict(sorted(ratios.items(), key=lambda pair: -pair[1]))

    def rates(self) -> dict[T, list[float]]:
        """Return everyone's rates in the rounds that they ran."""
        return {runner: [run[runner] for run in self._rounds if runner in run] for runner in self._rounds[0]}

    def _scores(self) -> NDArray[np.float64]:
        """Return (rounds, left): logarithms of the ratios to the median of those that are left, round by round."""
        logs = np.log([[run[runner] for runner in self.left] for run in self._rounds])
        return np.asarray(logs - np.median(logs, axis=1, keepdims=True))
