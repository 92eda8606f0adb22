"""The runs of neighbouring samples that an order reads, and when a rank first needs each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native

__all__ = ["Windows", "ranges"]


@dataclass(frozen=True, slots=True)
class Windows:
    """
    What to read ahead if batches take samples from many windows of a store at once.

    Run k holds the samples ``starts[k]`` up to ``stops[k]`` (int64, stored order). Among a rank's samples, in the
    order of its batches, ``needed[k]`` is the number of the first sample from the run's window and ``last[k]`` of the
    last one; ``needed`` ascends. ``members`` (int64) maps samples of a subset to samples of the store; None: all
    samples.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    needed: NDArray[np.int64]
    last: NDArray[np.int64]
    members: NDArray[np.int64] | None = None

    def part(self, start: int, stop: int) -> Windows:
        """Return the runs from number ``start`` up to ``stop``."""
        part = slice(start, stop)
        return replace(
            self, starts=self.starts[part], stops=self.stops[part], needed=self.needed[part], last=self.last[part]
        )

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples of the store at these positions, int64."""
        return positions if self.members is None else self.members[positions]

    def samples(self) -> NDArray[np.int64]:
        """Return all samples of all runs, int64."""
        return self.at(ranges(self.starts, self.stops))

    def after(self, first: int) -> Windows:
        """Return the windows that samples from number ``first`` on still need; sample ``first`` becomes number 0."""
        if first == 0:
            return self
        left = np.flatnonzero(self.last >= first)
        return Windows(
            self.starts[left],
            self.stops[left],
            np.maximum(self.needed[left] - first, 0),
            self.last[left] - first,
            self.members,
        )

    def of(self, members: NDArray[np.int64]) -> Windows:
        """Return the same windows if sample i of the order is sample ``members[i]`` of the store."""
        return replace(self, members=members if self.members is None else members[self.members])


def ranges(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    Return the numbers from each start up to its stop, one range after the other.

    >>> ranges(np.array([7, 2]), np.array([9, 5])).tolist()
    [7, 8, 2, 3, 4]
    """
    numbers = np.empty(int((stops - starts).sum()), np.int64)
    _native.write_runs(starts, stops, numbers)
    return numbers
