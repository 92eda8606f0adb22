"""Orders drawn for each epoch: by weights, with replacement, or by a sampler of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches, even_cuts, random_ids, repetitions, split_ids
from fastio.samplers.order import Division, Uneven, consumed_after
from fastio.samplers.position import whole_consumed
from fastio.samplers.share import Share

__all__ = [
    "Draw",
    "DrawnSampler",
    "WeightedDraw",
]


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


# Draws samples by weight, with replacement, as a pure function of seed and epoch.

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
