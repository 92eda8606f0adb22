"""Batches of an order that is drawn for each epoch: by weights, or by a sampler of the user's."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, even_cuts
from fastio.samplers.order import Division, Uneven
from fastio.samplers.repeats import random_ids, repetitions, split_ids
from fastio.samplers.share import Share

__all__ = ["Draw", "DrawnSampler"]


class Draw(Protocol):
    """Draws the order of each epoch; positions may repeat, and need not all come."""

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the positions of samples, int64."""
        ...

    def count(self, epoch: int) -> int:
        """Return how many positions an epoch has."""
        ...

    def configuration(self) -> dict[str, Any]:
        """Return what must be equal for an epoch's number to mean the same order; plain values for JSON."""
        ...


class DrawnSampler:
    """
    A BatchSampler that cuts what ``draw`` draws into batches of equal size.

    The order is divided among the ranks of ``share`` as in ``Division``. With ``is_own``, the order (of a
    DistributedSampler) already is this rank's part.
    """

    def __init__(
        self, draw: Draw, *, batch_size: int, share: Share, uneven: Uneven, drop_last: bool, is_own: bool = False
    ) -> None:
        self.draw = draw
        self.rank, self.world_size = share.rank, share.world_size
        self._batch_size = batch_size
        self._uneven: Uneven = uneven
        self._drop_last = drop_last
        self._parts = 1 if is_own else share.world_size
        self.division(0)  # refuses unknown values

    def division(self, count: int) -> Division:
        """Return how ``count`` samples are cut into steps and shares."""
        return Division(count, self._batch_size, self._parts, self._uneven, self._drop_last)

    def count(self, epoch: int) -> int:
        """Return the number of batches of one rank in an epoch."""
        return self.division(self.draw.count(epoch)).batches

    def plan(self, epoch: int) -> Batches:
        """Return this rank's batches of an epoch."""
        order = self.draw.order(epoch)
        counts = repetitions(order)
        division = self.division(len(order))
        ids = order if counts is None else random_ids(order, counts)
        mine = division.share(ids, self.rank if self._parts > 1 else 0)
        cuts = even_cuts(len(mine), self._batch_size)
        if counts is None:
            return Batches(mine, cuts, division.repeated, division.dropped)
        return Batches(split_ids(mine)[0], cuts, division.repeated, division.dropped, random_ids=mine)

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the order and its division."""
        return {
            **self.draw.configuration(),
            "batch_size": self._batch_size,
            "world_size": self.world_size,
            "uneven": self._uneven,
            "drop_last": self._drop_last,
        }
