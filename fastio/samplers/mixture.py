"""MixtureSampler: batches of a mixture in which every step has samples of all members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, even_cuts
from fastio.samplers.mixed_order import MixedEpoch, MixedOrder
from fastio.samplers.order import Division, consumed_after
from fastio.samplers.position import whole_consumed
from fastio.samplers.windows import ranges
from fastio.types.metrics import SourceReport

__all__ = ["MixtureSampler"]


class MixtureSampler:
    """
    Cuts the epochs of a mixture into batches of equal size.

    The ranks get equal shares of each member in a step, within one sample, and each keeps to neighbouring lanes.
    ``consumed`` is the number of samples of the epoch.
    """

    def __init__(self, order: MixedOrder, division: Division, *, rank: int, options: Mapping[str, Any]) -> None:
        self.order = order
        self.division = division
        self.rank, self.world_size = rank, division.world_size
        self._options = dict(options)

    def _left(self, consumed: int | None) -> Division:
        return replace(self.division, start=consumed or 0)

    def count(self, epoch: int, consumed: int | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return self._left(consumed).batches

    def advanced(self, epoch: int, consumed: int | None, batches: int) -> int:
        """Return the number of samples consumed after so many more batches."""
        return self._left(consumed).consumed(batches)

    def checked(self, epoch: int, consumed: Any) -> int:
        """Return the number of samples of a state. Raises ValueError if the epoch has fewer."""
        return whole_consumed(consumed, self.division.count)

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> int:
        """Return the number of samples consumed after so many batches of a state's options."""
        return consumed_after(state, self.division.count, batches)

    def counts(self, epoch: int, consumed: int | None) -> list[int]:
        """Return how many samples each member has given so far, from the very first epoch on."""
        return self.order.counts(epoch, consumed or 0)

    def sources(self, epoch: int, consumed: int | None) -> dict[str, SourceReport]:
        """Return what each member has given when so much of an epoch has been consumed."""
        now = self.counts(epoch, consumed)
        before = self.counts(epoch if consumed or not epoch else epoch - 1, None)
        return {
            name: SourceReport(samples, samples / member.size, samples - had, member.size)
            for name, member, had, samples in zip(self.order.blend.names, self.order.members, before, now, strict=True)
        }

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        division, mixed = self._left(consumed), self.order.epoch(epoch)
        share = self._share(division, mixed)
        return Batches(
            mixed.samples[share],
            even_cuts(len(share), division.batch_size),
            division.repeated,
            division.dropped,
            mixed.windows(share),
            None if mixed.ids is None else mixed.ids[share],
            division.padding(self.rank),
        )

    def _share(self, division: Division, mixed: MixedEpoch) -> NDArray[np.int64]:
        """Return the positions of this rank's samples in an epoch, batch after batch."""
        share = division.share(np.arange(division.count, dtype=np.int64), self.rank)
        steps, size = division.full_steps, division.world_size * division.batch_size
        if division.world_size == 1 or steps == 0:
            return share
        full = slice(division.start, division.start + steps * size)
        groups, members = mixed.groups[full].reshape(steps, size), mixed.members[full].reshape(steps, size)
        mine = dealt(groups, members, rank=self.rank, world_size=division.world_size)
        share[: steps * division.batch_size] = mine + division.start
        return share

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the order."""
        sizes = [member.size for member in self.order.members]
        return {
            "samples": self.division.count,
            "mixture": {**self.order.blend.to_json(), "sizes": sizes},
            **self._options,
            "order": self.order.to_json(),
        }

    def division_options(self) -> dict[str, Any]:
        """Return how the order is divided among ranks and batches."""
        return self.division.to_json()


def dealt(groups: NDArray[np.int64], members: NDArray[np.int64], *, rank: int, world_size: int) -> NDArray[np.int64]:
    """
    Return the positions of one rank's samples in full steps, step after step and ascending in each.

    ``groups`` and ``members`` are ``(steps, size)``; groups ascend with members. The samples of a step, sorted by
    group, are counted out to the ranks in turn, so that all get as many of each member, within one. Then each rank
    takes its number of a member's samples from next to each other: a rank's lanes are neighbours.
    """
    steps, size = groups.shape
    narrow = groups.astype(np.uint16) if groups.size and int(groups.max()) < 1 << 16 else groups
    by_group = np.argsort(narrow, axis=1, kind="stable")
    counts = np.stack([(members == member).sum(axis=1) for member in range(int(members.max()) + 1)], axis=1)
    stops = np.cumsum(counts, axis=1)
    starts = stops - counts
    first, last = (
        starts + _below(each, stops, world_size) - _below(each, starts, world_size) for each in (rank, rank + 1)
    )
    rows = np.arange(steps, dtype=np.int64)[:, None] * size
    taken = ranges((first + rows).reshape(-1), (last + rows).reshape(-1))
    mine: NDArray[np.int64] = np.sort(by_group.reshape(-1)[taken].reshape(steps, -1), axis=1) + rows
    return mine.reshape(-1)


def _below(rank: int, counts: NDArray[np.int64], world_size: int) -> NDArray[np.int64]:
    """Return how many of the first so many samples, counted out in turn, go to the ranks below this one."""
    rounds, rest = np.divmod(counts, world_size)
    below: NDArray[np.int64] = rounds * rank + np.minimum(rest, rank)
    return below
