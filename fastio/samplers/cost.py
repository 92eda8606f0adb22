"""Dealing a step's samples to ranks by what they cost, so that no rank waits for another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.order import Division

__all__ = ["Costs", "dealt_by_cost"]

_GOOD_ENOUGH = 1.002  # slowest rank / mean of a step
_CELLS = 1 << 20  # compared at once: memory
_MOST_COMPARED = 64  # samples a batch: with more, the greedy deal is good enough


@dataclass(frozen=True, slots=True)
class Costs:
    """What each sample costs: float64 ``(n,)``, finite and not negative. ``checksum`` tells costs apart."""

    values: NDArray[np.float64]

    @property
    def checksum(self) -> int:
        """A CRC-32 of the values."""
        return _native.crc32(self.values)

    def positions(self, samples: NDArray[np.int64], division: Division, rank: int) -> NDArray[np.int64]:
        """
        Return the positions of one rank's samples in the order of an epoch, batch after batch: ``(n,)`` int64.

        ``samples`` are those of the order's full steps that are left, step after step. Each step keeps its samples, and
        each rank gets a batch of them in the epoch's order. The last step, if it is not full, goes by rank.
        """
        size = division.world_size * division.batch_size
        steps = len(samples) // size
        dealt = dealt_by_cost(self.values[samples].reshape(steps, size), division.world_size)
        # Which part is whose goes round from step to step: the longest sample is not always the first rank's.
        turn = (division.start // size + np.arange(steps) + rank) % division.world_size
        mine = dealt[np.arange(steps), turn] + division.start + np.arange(steps)[:, None] * size
        return np.concatenate((mine.reshape(-1), division.last_step(rank)))


def dealt_by_cost(costs: NDArray[np.float64], world_size: int) -> NDArray[np.int64]:
    """
    Deal the samples of each step to ranks, equally many to each, so that the largest sum of costs is small.

    ``costs`` is ``(steps, world_size * batch)``; the result, ``(steps, world_size, batch)`` int64, has the numbers of
    each rank's samples within the step, ascending. The dearest sample comes first, each to the rank with the smallest
    sum that has room; then samples of the dearest rank are exchanged while that helps. A pure function.

    >>> dealt_by_cost(np.array([[9.0, 1.0, 2.0, 8.0, 7.0, 3.0]]), 2).tolist()
    [[[0, 2, 5], [1, 3, 4]]]
    """
    steps, size = costs.shape
    dealt = np.empty((steps, world_size, size // world_size), np.int64)
    rows = max(1, _CELLS // size)
    for first in range(0, steps, rows):
        part = slice(first, first + rows)
        dealt[part] = _exchanged(costs[part], *_greedy(costs[part], world_size))
    dealt.sort(axis=2)
    return dealt


def _greedy(costs: NDArray[np.float64], world_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return a deal, and the sum of each rank ``(steps, ranks)``."""
    steps, size = costs.shape
    batch = size // world_size
    dealt = np.empty((steps, world_size, batch), np.int64)
    sums, counts = np.zeros((steps, world_size)), np.zeros((steps, world_size), np.int64)
    bids = np.zeros((steps, world_size))  # the sums of ranks that have room
    every = np.arange(steps)
    for sample in np.argsort(-costs, axis=1, kind="stable").T:
        rank = bids.argmin(axis=1)
        dealt[every, rank, counts[every, rank]] = sample
        counts[every, rank] += 1
        sums[every, rank] += costs[every, sample]
        bids[every, rank] = np.where(counts[every, rank] < batch, sums[every, rank], np.inf)
    return dealt, sums


def _exchanged(costs: NDArray[np.float64], dealt: NDArray[np.int64], sums: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exchange samples of the dearest and the cheapest rank of a step while that makes the dearest one cheaper."""
    _, world_size, batch = dealt.shape
    if batch > _MOST_COMPARED:
        return dealt
    left = np.arange(len(costs))
    for _ in range(2 * world_size):
        left = left[sums[left].max(axis=1) > _GOOD_ENOUGH * sums[left].mean(axis=1)]
        moved = []
        for some in np.array_split(left, max(1, len(left) * batch * batch // _CELLS)):
            if len(some) == 0:
                continue
            high, low = sums[some].argmax(axis=1), sums[some].argmin(axis=1)
            gap = sums[some, high] - sums[some, low]
            own, other = (costs[some[:, None], dealt[some, rank]] for rank in (high, low))
            differences = own[:, :, None] - other[:, None, :]
            off = np.abs(differences - gap[:, None, None] / 2).reshape(len(some), -1)
            best = off.argmin(axis=1)
            gain = differences.reshape(len(some), -1)[np.arange(len(some)), best]
            is_better = (gain > 0) & (gain < gap)
            step, high, low, gain = some[is_better], high[is_better], low[is_better], gain[is_better]
            i, j = np.divmod(best[is_better], batch)
            dealt[step, high, i], dealt[step, low, j] = dealt[step, low, j], dealt[step, high, i]
            sums[step, high] -= gain
            sums[step, low] += gain
            moved.append(step)
        left = np.concatenate(moved) if moved else left[:0]
        if len(left) == 0:
            break
    return dealt
