"""MixedOrder: which member of a mixture gives each sample, and which of its samples that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import OrderSampler, random_ids, split_ids
from fastio.samplers.lanes import LaneOrder, Windows
from fastio.samplers.order import keyed_order
from fastio.samplers.shares import MixtureStream, Stretch

__all__ = [
    "FEW_MEMBERS",
    "Batching",
    "Blend",
    "MemberOrder",
    "MixedOrder",
    "MixedParts",
    "Positions",
]


Batching = Literal["random", "stratified", "per_source"]

FEW_MEMBERS = 8  # more are sorted instead of looked for one by one
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
class MixedParts:
    """What each member gives in an epoch; samples are numbered one member after the other, from ``firsts`` on."""

    parts: Sequence[MemberPart]
    firsts: Sequence[int]

    def __iter__(self) -> Iterator[tuple[int, MemberPart]]:
        """Yield the number of each member's first sample, and its part."""
        return zip(self.firsts, self.parts, strict=True)

    @property
    def have_lanes(self) -> bool:
        """Whether any member has an order in lanes."""
        return any(part.orders for part in self.parts)

    @property
    def repeat(self) -> bool:
        """Whether a sample may come twice in the epoch."""
        return any(part.repeats for part in self.parts)

    def ids(self, members: NDArray[np.uint16], positions: Sequence[Positions]) -> NDArray[np.int64]:
        """
        Return the number and repetition (see ``random_ids``) of samples of these members.

        ``positions`` has for each member those of its samples, in its part.
        """
        values = [part.ids[positions[member]] + first for member, (first, part) in enumerate(self)]
        ids = np.empty(len(members), np.int64)
        if len(values) > FEW_MEMBERS:
            ids[np.argsort(members, kind="stable")] = np.concatenate(values)
        else:
            for member, own in enumerate(values):
                ids[members == member] = own
        return ids

    def samples(self) -> NDArray[np.int64]:
        """Return the number of each sample of the epoch, one member after the other."""
        return np.concatenate([split_ids(part.ids)[0] + first for first, part in self])

    def groups(self, members: NDArray[np.uint16]) -> NDArray[Any]:
        """Return numbers that ascend by member and, within it, by lane, if these members give samples in turn."""
        if not self.have_lanes:
            return members
        counts = np.cumsum([0, *(part.lane_count for part in self.parts)])
        groups = np.empty(len(members), np.uint16 if counts[-1] <= 1 << 16 else np.int64)  # uint16 is sorted fastest
        for member, (part, first) in enumerate(zip(self.parts, counts[:-1], strict=True)):
            groups[members == member] = part.lanes + first
        return groups

    def windows(self, members: NDArray[np.uint16], positions: Sequence[Positions]) -> Windows:
        """Return what to read of members with lanes, and when, for samples as in ``ids``."""
        columns: list[list[NDArray[np.int64]]] = [[], [], [], []]
        for member, (first, part) in enumerate(self):
            if not part.orders:
                continue
            mine = np.flatnonzero(members == member)
            for windows, chosen in part.windows(positions[member]):
                numbers = mine[chosen]
                run = windows.starts + first, windows.stops + first, numbers[windows.needed], numbers[windows.last]
                for column, values in zip(columns, run, strict=True):
                    column.append(values)
        starts, stops, needed, last = (np.concatenate([np.empty(0, np.int64), *column]) for column in columns)
        by_need = np.argsort(needed, kind="stable")
        return Windows(starts[by_need], stops[by_need], needed[by_need], last[by_need])


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

    def parts(self, epoch: int) -> MixedParts:
        """Return what each member gives in an epoch."""
        bounds = zip(self.counts(epoch, 0), self.counts(epoch, self.samples_per_epoch), strict=True)
        parts = [member.part(*bound) for member, bound in zip(self.members, bounds, strict=True)]
        return MixedParts(parts, self._firsts)

    def turns(self, epoch: int) -> NDArray[np.uint16]:
        """Return the member of each sample of an epoch, ``(samples_per_epoch,)``."""
        start = epoch * self.samples_per_epoch
        stop = start + self.samples_per_epoch
        members = self.stream.members(start, stop)
        if self.blend.batching != "random" or len(self.members) == 1:
            return members
        cuts = [0]
        for _, first, last in self.stream.pieces(start, stop):
            cuts += [*range(first - start + _WINDOW, last - start, _WINDOW), last - start]
        shuffled = members.astype(np.int64)
        _native.shuffle_runs(shuffled, np.array(cuts, np.int64), self._seed ^ _SHUFFLED_MEMBERS, epoch << 32)
        return shuffled.astype(np.uint16)

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

    def configuration(self, samples: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what identifies the order of a sampler with these options, of so many samples an epoch."""
        sizes = [member.size for member in self.members]
        mixture = {**self.blend.to_json(), "sizes": sizes}
        return {"samples": samples, "mixture": mixture, **options, "order": self.to_json()}

    def to_json(self) -> dict[str, Any]:
        """Return what must be equal for the order to be the same, besides the blend: plain values for a state."""
        stretches = [stretch.to_json() for stretch in self.stream.stretches]
        return {
            "kind": "mixture",
            "stretches": stretches,
            "members": [member.order.configuration().get("order") for member in self.members],
        }


# MemberOrder: the order of one member of a mixture, epoch after epoch of its own.

Positions = NDArray[np.int64] | slice  # a slice where they are neighbours


@dataclass(frozen=True, slots=True)
class MemberPart:
    """
    A part of what a member gives.

    ``ids`` are the member's own numbers for its samples, with a count of its epochs from the first one met here (see
    ``random_ids``), ``(m,)`` int64; ``repeats`` says that there is more than one. ``orders`` has the orders of these
    epochs if they are in lanes; the part begins with sample ``start`` of the first one.
    """

    ids: NDArray[np.int64]
    repeats: bool
    start: int
    orders: tuple[LaneOrder, ...] = ()

    @property
    def lane_count(self) -> int:
        """The number of lanes; 1 without lanes."""
        return self.orders[0].lanes.lanes if self.orders else 1

    @property
    def lanes(self) -> NDArray[np.int64] | int:
        """The lane of each sample, ``(m,)`` int64; 0 without lanes."""
        if not self.orders:
            return 0
        lanes = [order.lane_of_places for order in self.orders]
        every = lanes[0] if len(lanes) == 1 else np.concatenate(lanes)
        return every[self.start : self.start + len(self.ids)]

    def windows(self, positions: Positions) -> list[tuple[Windows, NDArray[np.int64]]]:
        """
        Return what to read, by epochs of the member, for these positions in ``ids``.

        With each come the numbers, within ``positions``, that its ``needed`` and ``last`` count.
        """
        if not self.orders:
            return []
        if isinstance(positions, slice):
            positions = np.arange(positions.start, positions.stop, dtype=np.int64)
        epochs, places = np.divmod(positions + self.start, self.orders[0].count)
        windows = []
        for number, order in enumerate(self.orders):
            chosen = np.flatnonzero(epochs == number)
            if len(chosen):
                windows.append((order.windows(places[chosen]), chosen))
        return windows


class MemberOrder:
    """Sample p of a member's stream is sample p mod n of its epoch p div n, each epoch in the order of ``order``."""

    def __init__(self, order: OrderSampler) -> None:
        self.order = order
        self.size = order.division.count

    def part(self, start: int, stop: int) -> MemberPart:
        """Return what the member gives from sample ``start`` of its stream up to ``stop``."""
        if start == stop:
            return MemberPart(np.empty(0, np.int64), repeats=False, start=0)
        first, last = start // self.size, (stop - 1) // self.size
        begin = start - first * self.size
        part = slice(begin, begin + stop - start)
        counts = np.arange(last - first + 1, dtype=np.int64)[:, None]
        if self.order.has_lanes:
            orders = tuple(self.order.lane_order(epoch) for epoch in range(first, last + 1))
            samples = [order.order for order in orders]
            ids = random_ids(np.stack(samples), counts).reshape(-1) if last > first else samples[0]
            return MemberPart(ids[part], repeats=last > first, start=begin, orders=orders)
        if self.order.is_keyed:
            epochs, places = np.divmod(np.arange(start, stop, dtype=np.int64), self.size)
            order = partial(keyed_order, count=self.size, seed=self.order.seed)
            of_epochs = [order(places[epochs == epoch], epoch=epoch) for epoch in range(first, last + 1)]
            ids = random_ids(np.concatenate(of_epochs), epochs - first)
            return MemberPart(ids, repeats=last > first, start=begin)
        ids = random_ids(np.arange(self.size, dtype=np.int64), counts).reshape(-1)
        if self.order.shuffle is not False:
            cuts = np.arange(last - first + 2, dtype=np.int64) * self.size
            _native.shuffle_runs(ids, cuts, self.order.seed, first)
        return MemberPart(ids[part], repeats=last > first, start=begin)
