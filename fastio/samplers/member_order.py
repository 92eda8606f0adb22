"""MemberOrder: the order of one member of a mixture, epoch after epoch of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import OrderSampler
from fastio.samplers.lanes import LaneOrder
from fastio.samplers.windows import Windows

__all__ = ["MemberOrder", "MemberPart"]


@dataclass(frozen=True, slots=True)
class MemberPart:
    """
    A part of what a member gives: ``samples`` are its own numbers for them, ``(m,)`` int64.

    ``epochs`` (int64) counts the member's epochs from the first one met here; None: all are of one. ``lanes`` (int64)
    is the lane of each sample; None without lanes.
    """

    samples: NDArray[np.int64]
    epochs: NDArray[np.int64] | None
    lanes: NDArray[np.int64] | None
    start: int
    orders: tuple[LaneOrder, ...] = ()  # one for each epoch, if it has lanes

    def windows(self, positions: NDArray[np.int64]) -> list[tuple[Windows, NDArray[np.int64]]]:
        """
        Return what to read, by epochs of the member, for these positions in ``samples`` (ascending but for padding).

        With each come the positions, as numbers within ``positions``, that its ``needed`` and ``last`` count.
        """
        if not self.orders:
            return []
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
            return MemberPart(np.empty(0, np.int64), None, None, 0)
        first, last = start // self.size, (stop - 1) // self.size
        begin = start - first * self.size
        part = slice(begin, begin + stop - start)
        epochs = None
        if last > first:
            epochs = np.arange(begin, part.stop, dtype=np.int64) // self.size
        orders = [self.order.lane_order(epoch) for epoch in range(first, last + 1)] if self.order.has_lanes else []
        if orders:
            samples = np.concatenate([order.order for order in orders])[part]
            lanes = np.concatenate([order.lane_of_places for order in orders])[part]
            return MemberPart(samples, epochs, lanes, begin, tuple(orders))
        samples = np.tile(np.arange(self.size, dtype=np.int64), last - first + 1)
        if self.order.shuffle is not False:
            cuts = np.arange(last - first + 2, dtype=np.int64) * self.size
            _native.shuffle_runs(samples, cuts, self.order.seed, first)
        return MemberPart(samples[part], epochs, None, begin)
