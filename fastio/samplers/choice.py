"""Chooses what ``shuffle=True`` means for a store: the full shuffle, or lanes that mix its classes as well.

A store that fits into the page cache is shuffled fully, which then costs nothing. For a larger one, lanes are tried
and judged by the labels: by the number of distinct classes in the batches of single ranks and of whole steps, and by
the drift of the classes' shares over an epoch. If no lanes reach 0.9 of a full shuffle, the full shuffle is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.lanes import WINDOW_BLOCKS, LaneOrder, Lanes
from fastio.samplers.mixing import WELL_MIXED, Classes, judged_steps
from fastio.samplers.order import Division
from fastio.samplers.page_cache import PageCache
from fastio.types.shuffle_report import ShuffleReport

__all__ = ["Choice", "choose", "report"]

_MOST_BLOCK_BYTES = 4 << 20  # larger blocks are read no faster
_LEAST_BLOCK_BYTES = 16 << 10  # smaller blocks are read hardly faster than single samples
_LEAST_BLOCK_SAMPLES = 2
_LANES = (256, 128, 64)
_MORE = (1, 2, 4, 8, 16, 32)  # how much the number of lanes grows while a batch is not well mixed
_POOL_SHARE = 2  # blocks in use take at most 1 / 2 of the page cache, which also holds what was read before them

Kind = Literal["full", "lanes", "blocks"]


@dataclass(frozen=True, slots=True)
class Choice:
    """
    The kind of an order, and its lanes. "blocks" is the order in states that fastio wrote before there were lanes.

    ``mixing`` and ``drift`` are those of ``Classes``, or None if nothing was judged; ``reason`` says why this kind
    was chosen.
    """

    kind: Kind
    lanes: Lanes | None = None
    mixing: float | None = None
    drift: float | None = None
    reason: str = "as in the state"

    def to_json(self) -> dict[str, Any]:
        """Return the values that must be equal for the order to be the same."""
        return {"kind": self.kind, **(self.lanes.to_json() if self.lanes else {})}

    @classmethod
    def from_json(cls, saved: object, *, samples: int) -> Self:
        """Restore a choice from a state. Raises ValueError if the state does not fit ``samples``."""
        if isinstance(saved, Mapping):
            if saved.get("kind") == "lanes":
                return cls("lanes", Lanes.from_json(saved, samples=samples))
            if saved.get("kind") == "full":
                return cls("full")
            if saved.get("kind") == "blocks":
                return cls("blocks")
        raise ValueError(
            f"order={saved!r} in the state: expected one of the kinds full, lanes, blocks: the state is damaged"
        )


def choose(
    sizes: NDArray[np.int64],
    labels: Callable[[], NDArray[Any] | None],
    division: Division,
    *,
    seed: int,
    memory: PageCache,
) -> Choice:
    """
    Choose the order for samples of these ``sizes`` (bytes, ``(n,)``, stored order), of which ``memory`` says how many
    stay in memory.

    ``labels`` ``(n, ...)`` are read only if there is something to judge. A pure function of its arguments.
    """
    total = int(sizes.sum())
    if total <= memory.largest_whole:
        return Choice("full", mixing=1.0, reason="memory")
    values = labels()
    classes = None if values is None else Classes.of(values)
    reached: list[float] = []
    for lanes in _candidates(total, division, memory):
        if classes is None:
            return Choice("lanes", lanes, reason="no labels")
        order = LaneOrder(lanes, len(sizes), seed=seed, epoch=0)
        mixing, drift = _judged(order, classes, division)
        if mixing >= WELL_MIXED and drift <= classes.allowed_drift:
            return Choice("lanes", lanes, mixing, drift, "well mixed")
        reached.append(mixing)
    return Choice("full", mixing=1.0, reason="badly mixed" if reached else "little memory")


def _candidates(total: int, division: Division, memory: PageCache) -> list[Lanes]:
    """Return the lanes to try, cheapest first."""
    held, good = memory.nbytes, memory.good_block_bytes
    first = next((count for count in _LANES if _block_bytes(count, held) >= good), _LANES[-1])
    candidates = []
    for times in _MORE:
        lanes = _aligned(times * first, division)
        block = min(_MOST_BLOCK_BYTES, _block_bytes(lanes, held))
        rounds = -(-total // max(1, block * lanes))
        if block >= _LEAST_BLOCK_BYTES and lanes * rounds * _LEAST_BLOCK_SAMPLES <= division.count:
            candidates.append(Lanes(lanes, rounds))
    return candidates


def _block_bytes(lanes: int, memory: int) -> int:
    return memory // _POOL_SHARE // (WINDOW_BLOCKS * lanes)


def _aligned(wanted: int, division: Division) -> int:
    """
    Round to a number of lanes that is equal for all ranks and, if possible, divides a rank's batch.

    Then each step takes equally many samples of every lane, and ranks keep to their own.
    """
    world, batch = division.world_size, division.batch_size
    if world == 1:
        return wanted
    most = max(1, wanted // world)
    counts = (*range(most, most // 2, -1), *range(most + 1, 2 * most))
    return world * next((count for count in counts if batch % count == 0), most)


def _judged(order: LaneOrder, classes: Classes, division: Division) -> tuple[float, float]:
    """Return the worse mixing of steps and of single ranks' batches, and the drift."""
    steps = division.full_steps
    drift = classes.drift(order.order)
    if steps == 0:
        return 1.0, drift
    return classes.worst_mixing(order.order[order.dealt(judged_steps(steps), division)]), drift


def report(choice: Choice, sizes: NDArray[np.int64], division: Division, *, seed: int, memory: int) -> ShuffleReport:
    """Return what was chosen, and what all ranks together read in the first epoch, exactly."""
    total = int(sizes.sum())
    reads, read_bytes, block_bytes = len(sizes), total, 0
    if choice.lanes is not None and len(sizes):
        order = LaneOrder(choice.lanes, len(sizes), seed=seed, epoch=0)
        starts, stops, window = order.runs()
        users = _users(order, division)[window]
        ends = np.concatenate(([0], np.cumsum(sizes)))
        reads, read_bytes = int(users.sum()), int(((ends[stops] - ends[starts]) * users).sum())
        block_bytes = total // (choice.lanes.lanes * choice.lanes.rounds)
    return ShuffleReport(
        kind=choice.kind,
        reason=choice.reason,
        memory_bytes=memory,
        store_bytes=total,
        lanes=0 if choice.lanes is None else choice.lanes.lanes,
        block_bytes=block_bytes,
        mixing=choice.mixing,
        drift=choice.drift,
        reads=reads,
        read_ratio=read_bytes / total if total else 1.0,
    )


def _users(order: LaneOrder, division: Division) -> NDArray[np.int64]:
    """Return how many ranks take samples from each window, ``(windows,)``."""
    windows = len(order.cuts) - 1
    users = np.zeros(windows, np.int64)
    for share in order.shares(division, range(division.world_size)):
        users += np.bincount(order.window_of[order.places[share]], minlength=windows) > 0
    return users
