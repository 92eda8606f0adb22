"""Orders drawn for each epoch: by weights, with replacement, or by a sampler of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches, even_cuts, random_ids, repetitions, split_ids
from fastio.samplers.cost import Costs
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
    DistributedSampler) already is this rank's part. ``costs`` deal each step to the ranks.
    """

    def __init__(
        self,
        draw: Draw,
        *,
        batch_size: int,
        share: Share,
        uneven: Uneven,
        drop_last: bool,
        is_own: bool = False,
        costs: Costs | None = None,
    ) -> None:
        self.draw = draw
        self._costs = costs
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
        mine, padding = self._share(order, ids, division, rank), division.padding(rank)
        cuts = even_cuts(len(mine), self._batch_size)
        indices, drawn_ids = (mine, None) if counts is None else (split_ids(mine)[0], mine)
        return Batches(indices, cuts, division.repeated, division.dropped, random_ids=drawn_ids, padding=padding)

    def _share(
        self, order: NDArray[np.int64], ids: NDArray[np.int64], division: Division, rank: int
    ) -> NDArray[np.int64]:
        """Return what is left of the ids for one rank."""
        if self._costs is None or division.world_size == 1:
            return division.share(ids, rank)
        stop = division.start + division.full_steps * division.world_size * division.batch_size
        return ids[self._costs.positions(order[division.start : stop], division, rank)]

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
        costs = {} if self._costs is None else {"cost_crc32": self._costs.checksum}
        return self.division(0).to_json() | {"world_size": self.world_size} | costs


# Draws samples by weight, with replacement, as a pure function of seed, epoch and the epoch's weights.

_MANTISSA = 53
_KEPT = 2  # epochs whose weights are kept: the one under way, and the one before or after it

Weights = NDArray[np.float64]


class WeightedDraw:
    """
    Draws ``samples_per_epoch`` positions with the probabilities of their weights, like WeightedRandomSampler.

    ``weights`` is float64 ``(n,)``, or a function that returns such an array for the number of an epoch. Raises
    ValueError if a weight is negative or not finite, or all are zero. The numbers come from Philox, keyed by seed and
    epoch: all ranks, and a resumed training, draw the same.
    """

    def __init__(self, weights: Weights | Callable[[int], Weights], *, samples_per_epoch: int, seed: int) -> None:
        # The weights from an epoch on, by that epoch, ascending; None: they have been let go.
        self._changes: dict[int, _Table | Callable[[int], Weights] | None] = {0: _as_table(weights)}
        self._made: dict[int, _Table] = {}  # of functions, by epoch
        self._expected: tuple[int, Any] | None = None  # the epoch from which on a state has weights of this checksum
        self._count = samples_per_epoch
        self._seed = seed
        self._samples = len(self._table(0).ends)

    def count(self, epoch: int) -> int:
        """Return the number of positions, the same in every epoch."""
        return self._count

    def order(self, epoch: int) -> NDArray[np.int64]:
        """
        Return the positions of an epoch in the order in which they are drawn.

        Raises ValueError if a loaded state had other weights for it.
        """
        self._check_expected(epoch)
        table = self._table(epoch)
        raw = np.random.Philox(key=np.array([self._seed, epoch], np.uint64)).random_raw(self._count)
        uniform = (raw >> np.uint64(64 - _MANTISSA)) * 2.0**-_MANTISSA
        drawn: NDArray[np.int64] = np.searchsorted(table.ends, uniform * table.ends[-1], side="right")
        return drawn.clip(max=table.last)

    def change(self, weights: Weights | Callable[[int], Weights], *, epoch: int) -> None:
        """Use other weights from an epoch on. Raises ValueError for those that ``__init__`` refuses."""
        table = _as_table(weights)
        changes = {first: each for first, each in self._changes.items() if first < epoch}
        for first in list(changes)[:-_KEPT]:
            changes[first] = None
        self._changes = {**changes, epoch: table}
        self._made = {number: made for number, made in self._made.items() if number < epoch}
        self._expected = None

    def to_json(self, epoch: int) -> dict[str, Any]:
        """Return what a state says of the weights: those of its epoch, and those that come later if they are set."""
        values: dict[str, Any] = {"weights_crc32": self._table(epoch).crc32}
        later = next((first for first in self._changes if first > epoch), None)
        if later is not None:
            values["weights_later"] = {"epoch": later, "crc32": self._table(later).crc32}
        return values

    def adopt(self, state: Mapping[str, Any], epoch: int, *, has_begun: bool) -> None:
        """
        Compare the weights with those of a state. Raises ValueError if ``epoch`` has begun with others.

        If others were only about to come, ``order`` raises it, unless ``change`` sets weights until then.
        """
        crc32 = state.get("weights_crc32")
        if crc32 != self._table(epoch).crc32 and has_begun:
            raise ValueError(
                f"the weights of epoch {epoch} are not those with which it began: weights_crc32 is {crc32!r} in the "
                f"state and {self._table(epoch).crc32} here: pass the same weights, by set_weights before "
                f"load_state_dict if they were set so, or begin the next epoch, with set_epoch({epoch + 1})"
            )
        later: Any = state.get("weights_later") if has_begun else {"epoch": epoch, "crc32": crc32}
        if later is not None and not (isinstance(later, Mapping) and type(later.get("epoch")) is int):
            raise ValueError(f"weights_later={later!r}: expected epoch and crc32 in the state: it is damaged")
        self._expected = None if later is None else (later["epoch"], later.get("crc32"))

    def _check_expected(self, epoch: int) -> None:
        if self._expected is None or epoch < self._expected[0]:
            return
        first, crc32 = self._expected
        own = self._table(first).crc32
        if own != crc32:
            raise ValueError(
                f"the weights from epoch {first} on are not those of the loaded state: weights_crc32 is {crc32!r} "
                f"there and {own} here: call set_weights(...) after load_state_dict, or build the loader with the "
                "same weights"
            )

    def _table(self, epoch: int) -> _Table:
        """Return the weights of an epoch."""
        known = self._changes[max(first for first in self._changes if first <= epoch)]
        if isinstance(known, _Table):
            return known
        if known is None:
            raise ValueError(
                f"the weights of epoch {epoch} have been let go since set_weights replaced them: build another loader "
                "for that epoch"
            )
        made = self._made
        if epoch not in made:
            latest = list(made.items())[-(_KEPT - 1) :]
            made = self._made = {**dict(latest), epoch: _Table.of(known(epoch))}
        return made[epoch]

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the draw in all epochs; ``to_json`` has what may change."""
        return {"samples": self._samples, "samples_per_epoch": self._count, "seed": self._seed}


@dataclass(frozen=True, slots=True)
class _Table:
    """Weights to draw by: their sums up to each position, the last position that has one, and their checksum."""

    ends: Weights
    last: int
    crc32: int

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Raises ValueError for weights by which nothing can be drawn."""
        wrong = ~(np.isfinite(weights) & (weights >= 0))
        if wrong.any():
            at = int(wrong.argmax())
            raise ValueError(f"weights[{at}] is {weights[at]}: expected finite numbers of at least 0")
        if not weights.any():
            raise ValueError(
                f"weights: all {len(weights)} are 0, so nothing can be drawn: give some samples a positive weight"
            )
        return cls(np.cumsum(weights / weights.max()), int(np.flatnonzero(weights)[-1]), _native.crc32(weights))


def _as_table(weights: Weights | Callable[[int], Weights]) -> _Table | Callable[[int], Weights]:
    return weights if callable(weights) else _Table.of(weights)
