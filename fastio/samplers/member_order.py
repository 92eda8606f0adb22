"""MemberOrder: the order of one member of a mixture, epoch after epoch of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import OrderSampler
from fastio.samplers.lanes import LaneOrder
from fastio.samplers.repeats import random_ids
from fastio.samplers.windows import Windows

__all__ = ["MemberOrder", "MemberPart", "Positions"]

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
        ids = random_ids(np.arange(self.size, dtype=np.int64), counts).reshape(-1)
        if self.order.shuffle is not False:
            cuts = np.arange(last - first + 2, dtype=np.int64) * self.size
            _native.shuffle_runs(ids, cuts, self.order.seed, first)
        return MemberPart(ids[part], repeats=last > first, start=begin)
