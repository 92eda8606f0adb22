"""
The order in lanes: batches mix samples from all over a store, yet whole blocks are read, each by one rank.

    store      | strip 0 | strip 1 | strip 2 | strip 3 |      one strip per lane, ``rounds`` blocks in each
    round k      one block of every strip, drawn at random, dealt to the lanes at random
    lane l       its block of round 0, of round 1, ...        shuffled in windows of two blocks
    order        one sample of every lane, in random order; then the next of every lane, ...

At any time, the samples come from two blocks of every lane, spread evenly over the store: in a sorted store, each
stretch of the order has all classes in equal shares. A step of ``W * B`` samples is the next piece of the order on
any number of ranks. Within a step, samples are dealt by lane, so that a rank stays in its own lanes and reads few
blocks of others. Over the epoch, its lanes visit all strips.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.order import Division
from fastio.samplers.position import whole

__all__ = [
    "WINDOW_BLOCKS",
    "LaneOrder",
    "Lanes",
    "Windows",
    "ranges",
]


WINDOW_BLOCKS = 2
_GOLDEN = 2654435769  # 2**32 / golden ratio: puts the phases of neighbouring lanes far apart

# What random numbers are for; each purpose has its own streams. Part of the order: never change them.
_STRIPS, _ROUNDS, _WINDOWS, _TURNS = range(4)


@dataclass(frozen=True, slots=True)
class Lanes:
    """``lanes`` lanes of ``rounds`` blocks each; ``window`` blocks of a lane are shuffled together."""

    lanes: int
    rounds: int
    window: int = WINDOW_BLOCKS

    @classmethod
    def from_json(cls, saved: Mapping[str, Any], *, samples: int) -> Self:
        """Restore lanes from a saved state. Raises ValueError if they do not fit ``samples``."""
        expected = f"1 or more, and at most one block per sample of {samples}, in the state"
        lanes = whole("lanes", saved.get("lanes"), expected, least=1, below=samples + 1)
        rounds = whole("rounds", saved.get("rounds"), expected, least=1, below=samples // lanes + 1)
        return cls(lanes, rounds, whole("window", saved.get("window"), expected, least=1, below=rounds + samples + 1))

    def to_json(self) -> dict[str, int]:
        """Return the values for a state."""
        return asdict(self)


class LaneOrder:
    """
    The order of one epoch in lanes: a pure function of its arguments.

    ``sequence`` holds the samples lane after lane, shuffled within their windows; ``places[k]`` is the position in it
    of the k-th sample of the order. Both are ``(count,)`` int64.
    """

    def __init__(self, lanes: Lanes, count: int, *, seed: int, epoch: int) -> None:
        self.lanes = lanes
        self.count = count
        # Block k holds the samples from edges[k] up to edges[k + 1]; ``blocks`` are their numbers, lane after lane.
        blocks = lanes.lanes * lanes.rounds
        self.edges = np.arange(blocks + 1, dtype=np.int64) * count // blocks
        self.blocks = _dealt_blocks(lanes, seed=seed, epoch=epoch)
        self.cuts = _window_cuts(lanes, count)
        self.sequence = ranges(self.edges[self.blocks], self.edges[self.blocks + 1])
        _native.shuffle_runs(self.sequence, self.cuts, seed, _stream(epoch, _WINDOWS))
        self.places = np.empty(count, np.int64)
        _native.interleave_lanes(self.places, lanes.lanes, seed, _stream(epoch, _TURNS))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Return all samples in order: ``(count,)`` int64."""
        return self.sequence[self.places]

    @property
    def lane_of_places(self) -> NDArray[np.int64]:
        """Return the lane of each sample, in order: ``(count,)`` int64."""
        return self._lane(self.places)

    def share(self, division: Division, rank: int) -> NDArray[np.int64]:
        """Return the positions (in ``places``) of one rank's samples, batch after batch: ``(samples,)`` int64."""
        share: NDArray[np.int64] = self.shares(division, range(rank, rank + 1))[0]
        return share

    def shares(self, division: Division, ranks: range, slices: range | None = None) -> NDArray[np.int64]:
        """
        Return the positions (in ``places``) of the samples of these neighbouring ranks: ``(ranks, samples)`` int64.

        The samples of a step are sorted by lane, so that a rank gets neighbouring lanes: its own slice of them, or
        that in ``slices``. The last step always goes by rank: what is repeated stays behind all others.
        """
        shares = np.empty((len(ranks), division.samples), np.int64)
        first = (slices or ranks).start
        self._deal(division, shares, start=division.start, steps=division.full_steps, first_rank=first)
        shares[:, division.full_steps * division.batch_size :] = self._last_step(division)[ranks.start : ranks.stop]
        return shares

    def _last_step(self, division: Division) -> NDArray[np.int64]:
        """Return the positions (in ``places``) of each rank's samples after the full steps: ``(ranks, n)`` int64."""
        world, done = division.world_size, division.full_steps * division.batch_size
        last = division.samples - done
        slots = division.start + done * world + np.arange(last * world, dtype=np.int64)
        own = slots[slots < self.count]
        slots[: len(own)] = own[np.argsort(self._lane(self.places[own]), kind="stable")]
        # In the order of the epoch, not of the lanes; what is repeated, beyond its end, stays last.
        return np.sort(slots.reshape(world, last), axis=1) % max(1, self.count)

    def dealt(self, steps: NDArray[np.int64], division: Division) -> NDArray[np.int64]:
        """
        Return the positions (in ``places``) of each rank's samples in full steps: ``(steps, ranks, batch)`` int64.

        Steps are counted from the division's ``start``.
        """
        dealt = np.empty((len(steps), division.world_size, division.batch_size), np.int64)
        for step, out in zip(steps.tolist(), dealt, strict=True):
            start = division.start + step * division.world_size * division.batch_size
            self._deal(division, out, start=start, steps=1, first_rank=0)
        return dealt

    def _deal(self, division: Division, out: NDArray[np.int64], *, start: int, steps: int, first_rank: int) -> None:
        """Begin each row of ``out`` with what a rank from ``first_rank`` on gets of these full steps."""
        _native.deal_lanes(
            self.places,
            out,
            lanes=self.lanes.lanes,
            start=start,
            steps=steps,
            world_size=division.world_size,
            batch_size=division.batch_size,
            first_rank=first_rank,
        )

    def all_windows(self) -> Windows:
        """Return what to read for the whole order, and when: by rounds, some samples early."""
        starts, stops, window = self.runs()
        lanes, first, last = self.lanes.lanes, self.cuts[:-1], self.cuts[1:] - 1
        lane = self._lane(first)
        begin = lane * self.count // lanes
        needed, done = (first - begin) * lanes, np.minimum((last - begin + 1) * lanes, self.count) - 1
        by_need = np.argsort(needed[window], kind="stable")
        window = window[by_need]
        return Windows(starts[by_need], stops[by_need], needed[window], done[window])

    def windows(self, share: NDArray[np.int64]) -> Windows:
        """Return what to read, and when, for these positions of the order, which are one rank's."""
        windows = self.window_of[self.places[share]]
        first = np.full(len(self.cuts) - 1, -1, np.int64)
        last = first.copy()
        numbers = np.arange(len(share), dtype=np.int64)
        first[windows[::-1]] = numbers[::-1]  # if one position gets several values, the last one stays
        last[windows] = numbers
        starts, stops, window = self.runs()
        used = np.flatnonzero(first[window] >= 0)
        used = used[np.argsort(first[window[used]], kind="stable")]
        window = window[used]
        return Windows(starts[used], stops[used], first[window], last[window])

    def _lane(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lane of each position in ``sequence``."""
        return ((slots + 1) * self.lanes.lanes - 1) // self.count

    def runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """
        Return first sample, end and window of each run of neighbours that are read at once. A window has 1 to 3 runs.
        """
        return self._runs

    @cached_property
    def window_of(self) -> NDArray[np.int32]:
        """The window of each place in ``sequence``."""
        return np.repeat(np.arange(len(self.cuts) - 1, dtype=np.int32), np.diff(self.cuts))

    @cached_property
    def _runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        lengths = np.diff(self.edges)[self.blocks]
        begins = np.cumsum(lengths) - lengths  # the start of each block in ``sequence``
        breaks = np.concatenate((self.cuts[:-1], begins))
        breaks.sort()
        breaks = breaks[np.diff(breaks, prepend=-1) > 0]
        block = np.searchsorted(begins, breaks, side="right") - 1
        starts = self.edges[self.blocks[block]] + breaks - begins[block]
        window = np.searchsorted(self.cuts, breaks, side="right") - 1
        return starts, starts + np.diff(breaks, append=self.count), window


def _dealt_blocks(lanes: Lanes, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the blocks of lane 0 by rounds, then those of lane 1, ...: each round has one block of every strip."""
    count = lanes.lanes * lanes.rounds
    strips = np.arange(count, dtype=np.int64)
    _native.shuffle_runs(strips, np.arange(0, count + 1, lanes.rounds), seed, _stream(epoch, _STRIPS))
    rounds = np.ascontiguousarray(strips.reshape(lanes.lanes, lanes.rounds).T).reshape(-1)
    _native.shuffle_runs(rounds, np.arange(0, count + 1, lanes.lanes), seed, _stream(epoch, _ROUNDS))
    return np.ascontiguousarray(rounds.reshape(lanes.rounds, lanes.lanes).T).reshape(-1)


def _window_cuts(lanes: Lanes, count: int) -> NDArray[np.int64]:
    """
    Return where windows begin in the lanes' sequence, and its end.

    The first window of a lane is shortened, by a different length in each lane: otherwise all lanes would need a new
    window at the same time, and the disk would be idle in between.
    """
    begins = np.arange(lanes.lanes + 1, dtype=np.int64) * count // lanes.lanes
    length = max(1, lanes.window * count // (lanes.lanes * lanes.rounds))
    phases = np.arange(lanes.lanes, dtype=np.int64) * _GOLDEN % (1 << 32)
    seconds = begins[:-1] + 1 + (phases * length >> 32)  # the start of the second window of each lane
    others = np.maximum(0, -(-(begins[1:] - seconds) // length))
    starts = np.repeat(seconds, others) + ranges(np.zeros_like(others), others) * length
    cuts = np.concatenate((begins[:-1], starts, begins[-1:]))
    cuts.sort()
    return cuts


def _stream(epoch: int, purpose: int) -> int:
    """Return the first of the 2**30 streams of random numbers that a purpose has in an epoch."""
    return epoch << 32 | purpose << 30


# The runs of neighbouring samples that an order reads, and when a rank first needs each of them.


@dataclass(frozen=True, slots=True)
class Windows:
    """
    What to read ahead if batches take samples from many windows of a store at once.

    Run k holds the samples ``starts[k]`` up to ``stops[k]`` (int64, stored order). Among a rank's samples, in the
    order of its batches, ``needed[k]`` is the number of the first sample from the run's window and ``last[k]`` of the
    last one; ``needed`` ascends. ``members`` (int64) maps samples of a subset to samples of the store; None: all
    samples.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    needed: NDArray[np.int64]
    last: NDArray[np.int64]
    members: NDArray[np.int64] | None = None

    def part(self, start: int, stop: int) -> Windows:
        """Return the runs from number ``start`` up to ``stop``."""
        part = slice(start, stop)
        return replace(
            self, starts=self.starts[part], stops=self.stops[part], needed=self.needed[part], last=self.last[part]
        )

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples of the store at these positions, int64."""
        return positions if self.members is None else self.members[positions]

    def samples(self) -> NDArray[np.int64]:
        """Return all samples of all runs, int64."""
        return self.at(ranges(self.starts, self.stops))

    def after(self, first: int) -> Windows:
        """Return the windows that samples from number ``first`` on still need; sample ``first`` becomes number 0."""
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
        """Return the same windows if sample i of the order is sample ``members[i]`` of the store."""
        return replace(self, members=members if self.members is None else members[self.members])


def ranges(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    Return the numbers from each start up to its stop, one range after the other.

    >>> ranges(np.array([7, 2]), np.array([9, 5])).tolist()
    [7, 8, 2, 3, 4]
    """
    numbers = np.empty(int((stops - starts).sum()), np.int64)
    _native.write_runs(starts, stops, numbers)
    return numbers
