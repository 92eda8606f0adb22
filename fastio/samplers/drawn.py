"""Batches of an order that is drawn for each epoch: by weights, or by a sampler of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, even_cuts
from fastio.samplers.order import Division, Uneven, consumed_after
from fastio.samplers.position import whole_consumed
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
        self._is_own = is_own
        self.division(0)  # refuses unknown values

    def division(self, count: int) -> Division:
        """Return how ``count`` samples are cut into steps and shares."""
        parts = 1 if self._is_own else self.world_size
        return Division(count, self._batch_size, parts, self._uneven, self._drop_last)

    def _left(self, count: int, consumed: int | None) -> Division:
        return replace(self.division(count), start=consumed or 0)

    def count(self, epoch: int, consumed: int | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return self._left(self.draw.count(epoch), consumed).batches

    def advanced(self, epoch: int, consumed: int | None, batches: int) -> int:
        """Return the number of samples consumed after so many more batches."""
        return self._left(self.draw.count(epoch), consumed).consumed(batches)

    def checked(self, epoch: int, consumed: Any) -> int:
        """Return the number of samples of a state. Raises ValueError if the epoch has fewer."""
        return whole_consumed(consumed, self.draw.count(epoch))

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> int:
        """Return the number of samples consumed after so many batches of a state's options."""
        known = {**state, "world_size": 1} if self._is_own else state
        return consumed_after(known, self.draw.count(epoch), batches)

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        order = self.draw.order(epoch)
        counts = repetitions(order)
        division = self._left(len(order), consumed)
        ids = order if counts is None else random_ids(order, counts)
        rank = 0 if self._is_own else self.rank
        mine, padding = division.share(ids, rank), division.padding(rank)
        cuts = even_cuts(len(mine), self._batch_size)
        indices, drawn_ids = (mine, None) if counts is None else (split_ids(mine)[0], mine)
        return Batches(indices, cuts, division.repeated, division.dropped, random_ids=drawn_ids, padding=padding)

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch: see WholeEpochs; None if the user's sampler draws one rank's part."""
        if self._is_own and self.world_size > 1:
            return None
        order = self.draw.order(epoch)
        return order[: len(order) - dropped]

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the order; the world size too if the user's sampler divides it."""
        return self.draw.configuration() | ({"world_size": self.world_size} if self._is_own else {})

    def division_options(self) -> dict[str, Any]:
        """Return how the order is divided among ranks and batches."""
        return self.division(0).to_json() | {"world_size": self.world_size}
