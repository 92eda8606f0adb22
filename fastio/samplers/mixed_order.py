"""MixedOrder: the order of a mixture, epoch by epoch: which member gives each sample, and which sample that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.member_order import MemberOrder, MemberPart
from fastio.samplers.repeats import random_ids
from fastio.samplers.stream import MixtureStream, Stretch
from fastio.samplers.windows import Windows

__all__ = ["Batching", "Blend", "MixedEpoch", "MixedOrder"]

Batching = Literal["random", "stratified"]

_WINDOW = 4096  # samples whose members are shuffled together: part of the order, never change it
_SHUFFLED_MEMBERS = 0x6D65  # keeps these random numbers apart from those of the members' own orders


@dataclass(frozen=True, slots=True)
class Blend:
    """
    What a mixture is made of: the names of its members, and their weights from each step of ``schedule`` on.

    Weights are whole numbers, one per member; the first step is 0, and steps ascend.
    """

    names: tuple[str, ...]
    schedule: tuple[tuple[int, tuple[int, ...]], ...]
    batching: Batching

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a state."""
        schedule = [[step, dict(zip(self.names, weights, strict=True))] for step, weights in self.schedule]
        return {"members": list(self.names), "schedule": schedule, "batching": self.batching}


@dataclass(frozen=True, slots=True)
class MixedEpoch:
    """
    An epoch of a mixture, ``(samples_per_epoch,)`` each: the number of each sample and the member that it is of.

    Samples are numbered one member after the other. ``ids`` tell repetitions within the epoch apart; None: no sample
    comes twice. ``groups`` ascend by member and, within it, by lane.
    """

    samples: NDArray[np.int64]
    members: NDArray[np.int64]
    ids: NDArray[np.int64] | None
    groups: NDArray[np.int64]
    parts: Sequence[MemberPart]
    firsts: Sequence[int]  # the number of each member's first sample

    def windows(self, share: NDArray[np.int64]) -> Windows | None:
        """Return what to read, and when, for these positions in the epoch; None if no member has lanes."""
        if not any(part.orders for part in self.parts):
            return None
        found = []
        for member, part in enumerate(self.parts):
            if not part.orders:
                continue
            positions = np.cumsum(self.members == member) - 1  # in what the member gives, for each of its samples
            mine = np.flatnonzero(self.members[share] == member)
            for windows, chosen in part.windows(positions[share[mine]]):
                numbers, first = mine[chosen], self.firsts[member]
                starts, stops = windows.starts + first, windows.stops + first
                found.append((starts, stops, numbers[windows.needed], numbers[windows.last]))
        columns = [np.concatenate(column) for column in zip(*found, strict=True)] or [np.empty(0, np.int64)] * 4
        by_need = np.argsort(columns[2], kind="stable")
        return Windows(*(column[by_need] for column in columns))


class MixedOrder:
    """
    The endless stream of a mixture, of which each epoch has the next ``samples_per_epoch`` samples.

    ``starts`` are the samples of the stream at which the steps of the schedule begin.
    """

    def __init__(
        self,
        blend: Blend,
        members: Sequence[MemberOrder],
        *,
        samples_per_epoch: int,
        seed: int,
        starts: Sequence[int],
    ) -> None:
        self.blend = blend
        self.members = tuple(members)
        self.samples_per_epoch = samples_per_epoch
        self._seed = seed
        weights = [weights for _, weights in blend.schedule]
        self.stream = MixtureStream([Stretch(*pair) for pair in zip(starts, weights, strict=True)])
        sizes = [member.size for member in members]
        self._firsts = [sum(sizes[:number]) for number in range(len(sizes))]

    def counts(self, epoch: int, count: int) -> list[int]:
        """Return how many samples each member has given before sample ``count`` of an epoch, from the very first."""
        return self.stream.counts(epoch * self.samples_per_epoch + count)

    def epoch(self, epoch: int) -> MixedEpoch:
        """Return an epoch of the mixture."""
        members = self._members(epoch)
        bounds = list(zip(self.counts(epoch, 0), self.counts(epoch, self.samples_per_epoch), strict=True))
        parts = [member.part(*bound) for member, bound in zip(self.members, bounds, strict=True)]
        samples, repeats, groups = np.empty_like(members), None, np.empty_like(members)
        group = 0
        for member, part in enumerate(parts):
            own = np.flatnonzero(members == member)
            samples[own] = part.samples + self._firsts[member]
            groups[own] = group if part.lanes is None else part.lanes + group
            group += 1 if part.lanes is None else part.orders[0].lanes.lanes
            if part.epochs is not None:
                repeats = np.zeros_like(members) if repeats is None else repeats
                repeats[own] = part.epochs
        ids = None if repeats is None else random_ids(samples, repeats)
        return MixedEpoch(samples, members, ids, groups, parts, self._firsts)

    def _members(self, epoch: int) -> NDArray[np.int64]:
        """Return the member of each sample of an epoch."""
        start = epoch * self.samples_per_epoch
        stop = start + self.samples_per_epoch
        members = self.stream.members(start, stop)
        if self.blend.batching == "random":
            cuts = [0]
            for _, first, last in self.stream.pieces(start, stop):
                cuts += [*range(first - start + _WINDOW, last - start, _WINDOW), last - start]
            _native.shuffle_runs(members, np.array(cuts, np.int64), self._seed ^ _SHUFFLED_MEMBERS, epoch << 32)
        return members

    @property
    def is_held(self) -> bool:
        """Whether the stores may be read end to end first: an epoch needs all samples, and memory holds them."""
        given = zip(self.members, self.stream.counts(self.samples_per_epoch), strict=True)
        return all(count >= member.size and member.order.is_held for member, count in given)

    def settle(self) -> None:
        """Read sizes and labels now if they are still needed: the stores are about to be closed."""
        for member in self.members:
            member.order.settle()

    def report(self) -> None:
        """Return nothing: each member has an order of its own."""

    def adopt(self, order: object) -> None:
        """Use the order of a state (as ``to_json`` gives it) from now on. Raises ValueError if it is not one."""
        stretches = self._stretches(order)
        assert isinstance(order, Mapping)
        for member, saved in zip(self.members, order["members"], strict=True):
            if saved is not None:
                member.order.adopt(saved)
        self.stream = MixtureStream(stretches)

    def checked_order(self, order: object) -> dict[str, Any]:
        """Return the order of a state in its own form. Raises ValueError if it is not one for these members."""
        stretches = self._stretches(order)
        assert isinstance(order, Mapping)
        saved = [member.order.checked_order(one) for member, one in zip(self.members, order["members"], strict=True)]
        return {"kind": "mixture", "stretches": [stretch.to_json() for stretch in stretches], "members": saved}

    def _stretches(self, order: object) -> list[Stretch]:
        count = len(self.members)
        if isinstance(order, Mapping) and order.get("kind") == "mixture":
            members, stretches = order.get("members"), order.get("stretches")
            if isinstance(members, Sequence) and len(members) == count and isinstance(stretches, Sequence):
                known = [Stretch.from_json(stretch, members=count) for stretch in stretches]
                starts = [stretch.start for stretch in known]
                if starts[:1] == [0] and sorted(set(starts)) == starts:
                    return known
        raise ValueError(f"order={order!r} in the state: expected a mixture of {count} members: the state is damaged")

    def to_json(self) -> dict[str, Any]:
        """Return what must be equal for the order to be the same, besides the blend: plain values for a state."""
        stretches = [stretch.to_json() for stretch in self.stream.stretches]
        return {
            "kind": "mixture",
            "stretches": stretches,
            "members": [member.order.configuration().get("order") for member in self.members],
        }
