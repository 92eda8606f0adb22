"""MixtureSampler: batches of a mixture in which every step has samples of all members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, even_cuts
from fastio.samplers.mixed_order import FEW_MEMBERS, MixedOrder, MixedParts, Positions
from fastio.samplers.order import Division, consumed_after
from fastio.samplers.position import whole_consumed
from fastio.samplers.repeats import split_ids
from fastio.samplers.windows import ranges
from fastio.types.metrics import SourceReport

__all__ = ["MixtureSampler", "dealt", "sources_of"]


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
        return sources_of(self.order, epoch, self.counts(epoch, consumed), has_begun=bool(consumed))

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        division, parts, turns = self._left(consumed), self.order.parts(epoch), self.order.turns(epoch)
        share = self._share(division, parts, turns)
        mine = turns[share]
        positions = _positions(turns, share, len(self.order.members))
        ids = parts.ids(mine, positions)
        windows = parts.windows(mine, positions) if parts.have_lanes else None
        return Batches(
            split_ids(ids)[0] if parts.repeat else ids,
            even_cuts(len(ids), division.batch_size),
            division.repeated,
            division.dropped,
            windows,
            ids if parts.repeat else None,
            division.padding(self.rank),
        )

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64]:
        """Return all samples of an epoch, without the last ``dropped`` (see WholeEpochs)."""
        parts = self.order.parts(epoch)
        if not dropped:
            return parts.samples()
        ids = parts.ids(self.order.turns(epoch), [slice(len(part.ids)) for part in parts.parts])
        return split_ids(ids[: len(ids) - dropped])[0]

    def _share(self, division: Division, parts: MixedParts, turns: NDArray[np.uint16]) -> Positions:
        """Return the positions of this rank's samples in an epoch, batch after batch."""
        start, steps, size = division.start, division.full_steps, division.world_size * division.batch_size
        if division.world_size == 1 and division.samples <= division.left:
            return slice(start, start + division.samples)
        last = division.last_step(self.rank)
        full = slice(start, start + steps * size)
        if division.world_size == 1 or steps == 0:
            return np.concatenate((np.arange(full.start, full.stop, dtype=np.int64), last))
        groups, members = parts.groups(turns)[full].reshape(steps, size), turns[full].reshape(steps, size)
        mine = dealt(groups, members, rank=self.rank, world_size=division.world_size)
        return np.concatenate((mine + start, last))

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the order."""
        return self.order.configuration(self.division.count, self._options)

    def division_options(self) -> dict[str, Any]:
        """Return how the order is divided among ranks and batches."""
        return self.division.to_json()


def sources_of(order: MixedOrder, epoch: int, counts: Sequence[int], *, has_begun: bool) -> dict[str, SourceReport]:
    """Return the report of members that have given so many samples; ``has_begun``: some of them in this epoch."""
    before = order.counts(epoch if has_begun or not epoch else epoch - 1, 0)
    return {
        name: SourceReport(samples, samples / member.size, samples - had, member.size)
        for name, member, had, samples in zip(order.blend.names, order.members, before, counts, strict=True)
    }


def _positions(turns: NDArray[np.uint16], share: Positions, count: int) -> Sequence[Positions]:
    """Return for each of ``count`` members which of its samples in an epoch, counted from 0, those of a share are."""
    if isinstance(share, slice):
        before = np.bincount(turns[: share.start], minlength=count)
        stops = before + np.bincount(turns[share], minlength=count)
        return [slice(*bounds) for bounds in zip(before.tolist(), stops.tolist(), strict=True)]
    owned, mine = _by_member(turns, count), _by_member(turns[share], count)
    return [np.searchsorted(own, share[some]) for own, some in zip(owned, mine, strict=True)]


def _by_member(members: NDArray[np.uint16], count: int) -> list[NDArray[np.int64]]:
    """Return the places at which each member stands, ascending."""
    if count <= FEW_MEMBERS:
        return [np.flatnonzero(members == member) for member in range(count)]
    return np.split(np.argsort(members, kind="stable"), np.cumsum(np.bincount(members, minlength=count))[:-1])


def dealt(groups: NDArray[Any], members: NDArray[np.uint16], *, rank: int, world_size: int) -> NDArray[np.int64]:
    """
    Return the positions of one rank's samples in full steps, step after step and ascending in each.

    ``groups`` and ``members`` are ``(steps, size)``; groups ascend with members. The samples of a step, sorted by
    group, are counted out to the ranks in turn, so that all get as many of each member, within one. Then each rank
    takes its number of a member's samples from next to each other: a rank's lanes are neighbours.
    """
    steps, size = groups.shape
    by_group = np.argsort(groups, axis=1, kind="stable")
    counts = _counts(members, int(members.max(initial=0)) + 1)
    stops = np.cumsum(counts, axis=1)
    starts = stops - counts
    first, last = (
        starts + _below(each, stops, world_size) - _below(each, starts, world_size) for each in (rank, rank + 1)
    )
    rows = np.arange(steps, dtype=np.int64)[:, None] * size
    taken = ranges((first + rows).reshape(-1), (last + rows).reshape(-1))
    mine: NDArray[np.int64] = np.sort(by_group.reshape(-1)[taken].reshape(steps, size // world_size), axis=1) + rows
    return mine.reshape(-1)


def _counts(members: NDArray[np.uint16], count: int) -> NDArray[np.int64]:
    """Return how many samples of each member each row has: ``(rows, count)`` int64."""
    if count <= FEW_MEMBERS:
        return np.stack([(members == member).sum(axis=1) for member in range(count)], axis=1)
    numbered = members + np.arange(len(members), dtype=np.int64)[:, None] * count
    return np.bincount(numbered.reshape(-1), minlength=len(members) * count).reshape(len(members), count)


def _below(rank: int, counts: NDArray[np.int64], world_size: int) -> NDArray[np.int64]:
    """Return how many of the first so many samples, counted out in turn, go to the ranks below this one."""
    rounds, rest = np.divmod(counts, world_size)
    below: NDArray[np.int64] = rounds * rank + np.minimum(rest, rank)
    return below
