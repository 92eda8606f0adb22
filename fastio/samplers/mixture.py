"""Samplers of mixtures: every step has samples of all members, or of one (PerSourceSampler)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, even_cuts, split_ids
from fastio.samplers.lanes import ranges
from fastio.samplers.mixed_order import FEW_MEMBERS, MixedOrder, MixedParts, Positions
from fastio.samplers.order import Division, consumed_after
from fastio.samplers.position import whole, whole_consumed
from fastio.types.metrics import SourceReport
from fastio.types.spans import numbers_within

__all__ = [
    "MixtureSampler",
    "PerSourceSampler",
    "dealt",
    "sources_of",
]


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


# PerSourceSampler: batches of a mixture in which every step has samples of one member.


@dataclass(frozen=True, slots=True)
class _Steps:
    """
    What is left of an epoch: step k has ``sizes[k]`` new samples of ``members[k]``, in batches of ``batches[k]``.

    Each array is int64, one entry per step.
    """

    members: NDArray[np.int64]
    sizes: NDArray[np.int64]
    batches: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.members)


class PerSourceSampler:
    """
    Cuts what each member gives in an epoch into steps, and orders the steps so that the members take turns.

    A member's samples that fill no step come at the end of the epoch, in a smaller step. If there are fewer of them
    than ranks, ``uneven`` says what happens: "pad" repeats samples of that member, "drop" leaves them out.
    ``consumed`` is the number of samples that each member has given in the epoch, as a list.
    """

    def __init__(self, order: MixedOrder, division: Division, *, rank: int, options: Mapping[str, Any]) -> None:
        if division.uneven == "repeat":
            raise ValueError(
                "uneven='repeat': not for batching='per_source', whose last steps are of one member each: use 'pad' or "
                "'drop'"
            )
        self.order = order
        self.division = division
        self.rank, self.world_size = rank, division.world_size
        self._options = dict(options)

    def count(self, epoch: int, consumed: Sequence[int] | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return len(self._steps(epoch, consumed))

    def advanced(self, epoch: int, consumed: Sequence[int] | None, batches: int) -> list[int]:
        """Return how many samples of each member have been consumed after so many more batches."""
        steps, before = self._steps(epoch, consumed), consumed or [0] * len(self.order.blend.names)
        new = np.bincount(steps.members[:batches], steps.sizes[:batches], minlength=len(before)).astype(np.int64)
        return [had + more for had, more in zip(before, new.tolist(), strict=True)]

    def checked(self, epoch: int, consumed: Any) -> list[int] | None:
        """Return the numbers of samples in a state. Raises ValueError if they are none for this mixture."""
        names, most = self.order.blend.names, self.order.samples_per_epoch
        if consumed is None:
            return None
        if not isinstance(consumed, Sequence) or len(consumed) != len(names):
            raise ValueError(f"consumed={consumed!r}: expected a number for each of {len(names)} members in the state")
        return [
            whole(f"consumed of {name!r}", had, f"0 to {most} in the state", least=0, below=most + 1)
            for name, had in zip(names, consumed, strict=True)
        ]

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> list[int]:
        """Raise ValueError: states that count batches are older than mixtures."""
        raise ValueError("the state is of a version that knew no mixtures: it belongs to another loader")

    def sources(self, epoch: int, consumed: Sequence[int] | None) -> dict[str, SourceReport]:
        """Return what each member has given when so much of an epoch has been consumed."""
        before = self.order.counts(epoch, 0)
        now = [had + new for had, new in zip(before, consumed or [0] * len(before), strict=True)]
        return sources_of(self.order, epoch, now, has_begun=any(consumed or ()))

    def plan(self, epoch: int, consumed: Sequence[int] | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        steps, parts = self._steps(epoch, consumed), self.order.parts(epoch)
        had = np.array(consumed or [0] * len(parts.parts), np.int64)
        cuts = np.concatenate(([0], np.cumsum(steps.batches)))
        turns = np.repeat(steps.members, steps.batches).astype(np.uint16)
        positions = [self._positions(parts, steps, member, int(first)) for member, first in enumerate(had)]
        ids = parts.ids(turns, positions)
        new = int(steps.sizes.sum())
        left = sum(self._given(epoch)) - int(had.sum())
        return Batches(
            split_ids(ids)[0] if parts.repeat else ids,
            cuts,
            repeated=len(ids) * self.world_size - new,
            dropped=left - new,
            windows=parts.windows(turns, positions) if parts.have_lanes else None,
            random_ids=ids if parts.repeat else None,
            padding=int((self._new(steps) < steps.batches).sum()),
        )

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch (see WholeEpochs); None if some are left out, which depends on the steps."""
        return None if dropped else self.order.parts(epoch).samples()

    def _new(self, steps: _Steps) -> NDArray[np.int64]:
        """Return how many samples of each batch of this rank are no repetitions."""
        new: NDArray[np.int64] = np.clip(steps.sizes - self.rank * steps.batches, 0, steps.batches)
        return new

    def _positions(self, parts: MixedParts, steps: _Steps, member: int, first: int) -> NDArray[np.int64]:
        """Return which of a member's samples in the epoch this rank gets; ``first`` is the first one left."""
        own = steps.members == member
        sizes, batches = steps.sizes[own], steps.batches[own]
        size = self.division.batch_size * self.world_size
        full = int((sizes == size).sum())
        part = slice(first, first + full * size)
        lanes = parts.parts[member].lanes
        groups = lanes[part] if isinstance(lanes, np.ndarray) else np.zeros(full * size, np.uint16)
        one = np.zeros((full, size), np.uint16)
        mine = [dealt(groups.reshape(full, size), one, rank=self.rank, world_size=self.world_size) + first]
        start = part.stop
        for fresh, batch in zip(sizes[full:].tolist(), batches[full:].tolist(), strict=True):
            slots = np.arange(self.rank * batch, (self.rank + 1) * batch, dtype=np.int64)
            behind = (slots - fresh) % len(parts.parts[member].ids)
            mine.append(np.where(slots < fresh, start + slots, behind))
            start += fresh
        return np.concatenate(mine)

    def _given(self, epoch: int) -> list[int]:
        """Return how many samples each member gives in an epoch."""
        bounds = zip(self.order.counts(epoch, 0), self.order.counts(epoch + 1, 0), strict=True)
        return [stop - start for start, stop in bounds]

    def _steps(self, epoch: int, consumed: Sequence[int] | None) -> _Steps:
        """Return the steps that are left: a function of what has been consumed alone."""
        members, turns = self._full_steps(epoch, consumed)
        size = self.division.batch_size * self.world_size
        had = consumed or [0] * len(self.order.members)
        full = np.bincount(members, minlength=len(had)) * size
        rest = [most - before - new for most, before, new in zip(self._given(epoch), had, full.tolist(), strict=True)]
        if min(rest) < 0:
            raise ValueError(
                f"consumed={had}: members give {self._given(epoch)} in epoch {epoch}: the state is damaged"
            )
        short = [(member, left // self.world_size) for member, left in enumerate(rest) if left >= self.world_size]
        last = [(left % self.world_size, member) for member, left in enumerate(rest) if left % self.world_size]
        if self.division.drop_last:
            short, last = [], []
        if self.division.uneven == "drop":
            last = []
        # Members with more left come first: what is repeated for some ranks is then at the end of their plans.
        last.sort(key=lambda pair: (-pair[0], pair[1]))
        columns = (
            [member for member, _ in short] + [member for _, member in last],
            [batch * self.world_size for _, batch in short] + [left for left, _ in last],
            [batch for _, batch in short] + [1] * len(last),
        )
        whole_steps = (members[turns], np.full(len(members), size), np.full(len(members), self.division.batch_size))
        return _Steps(
            *(np.concatenate((one, np.array(other, np.int64))) for one, other in zip(whole_steps, columns, strict=True))
        )

    def _full_steps(self, epoch: int, consumed: Sequence[int] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return the member of each full step that is left, and the order in which these steps come.

        Within a stretch of the schedule, step k of a member comes when its middle is due. What a member has left at
        the end of a stretch joins the next one.
        """
        size = self.division.batch_size * self.world_size
        start = epoch * self.order.samples_per_epoch
        before = np.array(self.order.counts(epoch, 0))
        had = np.array(consumed or np.zeros_like(before))
        members, times = [np.empty(0, np.int64)], [np.empty(0)]
        begun = np.zeros_like(before)
        pieces = self.order.stream.pieces(start, start + self.order.samples_per_epoch)
        for number, (_, _, end) in enumerate(pieces):
            due = np.array(self.order.stream.counts(end)) - before
            steps = np.maximum(due - had, 0) // size
            which = np.repeat(np.arange(len(due)), steps)
            step = numbers_within(steps)
            middle = 2 * (had[which] + step * size - begun[which]) + size
            share = middle / np.maximum(1, 2 * (due - begun)[which])
            members.append(which)
            times.append(2 * number + np.clip(share, 0, 1.5))
            had, begun = had + steps * size, due
        time = np.concatenate(times)
        return np.concatenate(members), np.argsort(time, kind="stable")

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the order."""
        return self.order.configuration(self.division.count, self._options)

    def division_options(self) -> dict[str, Any]:
        """Return how the order is divided among ranks and batches."""
        return self.division.to_json()
