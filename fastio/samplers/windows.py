"""The runs of neighbouring samples that an order reads, and when a rank first needs each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Windows", "ranges"]


@dataclass(frozen=True, slots=True)
class Windows:
    """
    What to read ahead of batches whose samples come from many windows of a store at once.

    Run k holds the samples ``starts[k]`` up to ``stops[k]`` (int64, stored order). Of the samples of a rank, in
    the order of its batches, number ``needed[k]`` is the first that its window gives and ``last[k]`` the last
    one; ``needed`` ascends. ``members`` (int64) names the samples of a subset by their place in it; None: all.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    needed: NDArray[np.int64]
    last: NDArray[np.int64]
    members: NDArray[np.int64] | None = None

    def begun_in(self, first: int, stop: int) -> Windows:
        """The windows that are first needed from sample number ``first`` up to ``stop``."""
        part = slice(*np.searchsorted(self.needed, (first, stop)).tolist())
        return Windows(self.starts[part], self.stops[part], self.needed[part], self.last[part], self.members)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples of the store at these places of the order's samples, int64."""
        return places if self.members is None else self.members[places]

    def samples(self) -> NDArray[np.int64]:
        """All samples of all runs, int64."""
        return self.at(ranges(self.starts, self.stops))

    def after(self, first: int) -> Windows:
        """The windows that samples from number ``first`` on still need; that one is number 0 then."""
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
        """The same windows where sample i of the order is sample ``members[i]`` of the store."""
        return replace(self, members=members if self.members is None else members[self.members])


def ranges(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    The numbers from each start up to its stop, one range after the other.

    >>> ranges(np.array([7, 2]), np.array([9, 5])).tolist()
    [7, 8, 2, 3, 4]
    """
    lengths = stops - starts
    ends = np.cumsum(lengths)
    numbers = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64)
    numbers += np.repeat(starts - (ends - lengths), lengths)
    return numbers
