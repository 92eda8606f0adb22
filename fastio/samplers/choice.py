"""
Chooses what ``shuffle=True`` means for a store: the full shuffle, or lanes that mix its classes as well.

A store that fits into the page cache is shuffled fully, which then costs nothing; so is one of very many samples that
are smaller than what a plan of lanes holds of each. For a larger one, lanes are tried and judged by the labels: by the
number of distinct classes in the batches of single ranks and of whole steps, and by the drift of the classes' shares
over an epoch. If no lanes reach 0.9 of a full shuffle, the full shuffle is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, lgamma, sqrt
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.lanes import WINDOW_BLOCKS, LaneOrder, Lanes
from fastio.samplers.memory import PageCache
from fastio.samplers.order import MOST_HELD, Division
from fastio.types.shuffle_report import ShuffleReport
from fastio.types.spans import distinct

__all__ = [
    "WELL_MIXED",
    "Choice",
    "Classes",
    "Kind",
    "batch_mixing",
    "choose",
    "full_kind",
    "judged_steps",
    "report",
]


_MOST_BLOCK_BYTES = 4 << 20  # larger blocks are read no faster
_LEAST_BLOCK_BYTES = 16 << 10  # smaller blocks are read hardly faster than single samples
_LEAST_BLOCK_SAMPLES = 2
_LANES = (256, 128, 64)
_MORE = (1, 2, 4, 8, 16, 32)  # how much the number of lanes grows while a batch is not well mixed
_PLAN_BYTES = 24  # that a plan of lanes holds of each sample, in each rank
_POOL_SHARE = 2  # blocks in use take at most 1 / 2 of the page cache, which also holds what was read before them

Kind = Literal["full", "keyed", "lanes", "blocks"]
_WITHOUT_LANES: tuple[Kind, ...] = ("full", "keyed", "blocks")


@dataclass(frozen=True, slots=True)
class Choice:
    """
    The kind of an order, and its lanes. Of very many samples, a full shuffle is "keyed", see ``keyed_order``, and
    "full" in states that fastio wrote before. "blocks" is the order in states from before there were lanes.

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
            for kind in _WITHOUT_LANES:
                if saved.get("kind") == kind:
                    return cls(kind)
        kinds = ", ".join(["lanes", *_WITHOUT_LANES])
        raise ValueError(f"order={saved!r} in the state: expected one of the kinds {kinds}: the state is damaged")


def full_kind(count: int) -> Kind:
    """Return which kind a full shuffle of so many samples is."""
    return "keyed" if count > MOST_HELD else "full"


def choose(
    total: int,
    labels: Callable[[], NDArray[Any] | None],
    division: Division,
    *,
    seed: int,
    memory: PageCache,
) -> Choice:
    """
    Choose the order for samples of ``total`` bytes together, of which ``memory`` says how many stay in memory.

    ``labels`` ``(n, ...)`` are read only if there is something to judge. A pure function of its arguments.
    """
    if total <= memory.largest_whole:
        return Choice(full_kind(division.count), mixing=1.0, reason="memory")
    # Behind a URL single samples would be requests, so plans are held there.
    if division.count > MOST_HELD and total <= _PLAN_BYTES * division.count and memory.whole_bytes is None:
        return Choice(full_kind(division.count), mixing=1.0, reason="small samples")
    values = labels()
    classes = None if values is None else Classes.of(values)
    reached: list[float] = []
    for lanes in _candidates(total, division, memory):
        if classes is None:
            return Choice("lanes", lanes, reason="no labels")
        order = LaneOrder(lanes, division.count, seed=seed, epoch=0)
        mixing, drift = _judged(order, classes, division)
        if mixing >= WELL_MIXED and drift <= classes.allowed_drift:
            return Choice("lanes", lanes, mixing, drift, "well mixed")
        reached.append(mixing)
    return Choice(full_kind(division.count), mixing=1.0, reason="badly mixed" if reached else "little memory")


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


def report(
    choice: Choice, total: int, sizes: Callable[[], NDArray[np.int64]], division: Division, *, seed: int, memory: int
) -> ShuffleReport:
    """
    Return what was chosen, and what all ranks together read in the first epoch, exactly.

    Samples have ``total`` bytes together; ``sizes`` returns those of each, ``(n,)``, as stored, for an order in lanes.
    """
    reads, read_bytes, block_bytes = division.count, total, 0
    if choice.lanes is not None and division.count:
        order = LaneOrder(choice.lanes, division.count, seed=seed, epoch=0)
        starts, stops, window = order.runs()
        users = _users(order, division)[window]
        ends = np.concatenate(([0], np.cumsum(sizes())))
        reads, read_bytes = int(users.sum()), int(((ends[stops] - ends[starts]) * users).sum())
        block_bytes = total // (choice.lanes.lanes * choice.lanes.rounds)
    return ShuffleReport(
        kind="full" if choice.kind == "keyed" else choice.kind,
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


# Measures how well an order mixes a store's classes, compared with a full shuffle: in batches and over the epoch.

WELL_MIXED = 0.9  # fraction of the distinct classes in a batch of a full shuffle
_MOST_DRIFT = 0.02  # of a class's share, in addition to what chance alone causes
_CHANCE = 4  # standard deviations
_STRETCHES = 16  # of an epoch
_STEPS_JUDGED = 64
_QUANTILES = 64  # classes that continuous numbers are cut into


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of each sample as a number ``(n,)`` int64, and how many samples each class has."""

    numbers: NDArray[np.int64]
    members: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[Any]) -> Self:
        """
        Make classes from labels of any kind, ``(n,)`` or ``(n, ...)``.

        Equal labels, or equal rows, form one class. Floating numbers are cut into 64 classes of equal size, so that
        neighbours in a sorted store belong together.
        """
        if labels.size == 0:
            return cls(np.zeros(len(labels), np.int64), np.array([len(labels)]))
        if labels.ndim > 1:
            rows = np.ascontiguousarray(labels).reshape(len(labels), -1)
            labels = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
        elif labels.dtype.kind == "f":
            labels = np.nan_to_num(labels)
            bounds = np.quantile(labels, np.arange(1, _QUANTILES) / _QUANTILES)
            labels = np.searchsorted(distinct(bounds), labels, side="right")
        return cls(*_classes(labels))

    def mixing(self, batches: NDArray[np.int64]) -> float:
        """Return ``batch_mixing`` of batches of these samples."""
        chosen = np.sort(self.numbers[batches], axis=1)
        distinct = 1 + (np.diff(chosen, axis=1) != 0).sum(axis=1).mean()
        return float(distinct / _expected(self.members, len(self.numbers), batches.shape[1]))

    def worst_mixing(self, steps: NDArray[np.int64]) -> float:
        """Return the worse mixing of whole steps and of single ranks' batches, ``(steps, ranks, batch)``."""
        return min(self.mixing(steps.reshape(len(steps), -1)), self.mixing(steps.reshape(-1, steps.shape[2])))

    def drift(self, order: NDArray[np.int64]) -> float:
        """
        Return how far a class's share deviates from its overall share, at most, in 16 stretches of an epoch: 0 to 1.

        ``order`` ``(n,)`` contains every sample once.
        """
        whole = self.members / max(1, len(order))
        cuts = np.arange(1, _STRETCHES) * len(order) // _STRETCHES
        shares = [
            np.bincount(self.numbers[stretch], minlength=len(whole)) / len(stretch)
            for stretch in np.split(order, cuts)
            if len(stretch)
        ]
        return float(max((np.abs(share - whole).max() for share in shares), default=0.0))

    @property
    def allowed_drift(self) -> float:
        """The drift that chance causes in a full shuffle, and a little more."""
        count = max(1, len(self.numbers))
        share = min(0.5, float(self.members.max(initial=0)) / count)
        return _MOST_DRIFT + _CHANCE * sqrt(share * (1 - share) * _STRETCHES / count)


def judged_steps(steps: int) -> NDArray[np.int64]:
    """Return the steps, spread over an epoch of so many, whose mixing stands for all."""
    count = min(steps, _STEPS_JUDGED)
    return np.arange(count) * steps // max(1, count)


def batch_mixing(labels: NDArray[Any], batches: NDArray[np.int64]) -> float:
    """
    Return the distinct classes in these batches, relative to the average of a full shuffle.

    ``labels`` ``(n,)`` are those of all samples, ``batches`` ``(k, size)`` the indices in each batch. About 1 means
    that classes are mixed as in a full shuffle; a sorted store read in order is far below.

    >>> round(batch_mixing(np.array([7, 7, 8, 8]), np.array([[0, 1], [2, 3]])), 3)
    0.6
    """
    return Classes.of(labels).mixing(batches)


def _classes(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class of each sample as a number, and the size of each class; some may be empty."""
    if labels.dtype.kind in "iu":
        low, high = int(labels.min()), int(labels.max())
        if high - low <= len(labels):
            wide = np.uint64 if labels.dtype.kind == "u" else np.int64  # a difference in int8 would overflow
            numbers = np.subtract(labels, labels.min(), dtype=wide).astype(np.int64)
            return numbers, np.bincount(numbers)
    _, classes, members = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, members


def _expected(members: NDArray[np.int64], count: int, size: int) -> float:
    """
    Return the expected distinct classes among ``size`` of ``count`` samples drawn without replacement.

    ``members`` holds the size of each class.
    """
    values, times = np.unique(members, return_counts=True)
    present = np.array([1 - _absent(value, count, size) for value in values.tolist()])
    return float((times * present).sum())


def _absent(members: int, count: int, size: int) -> float:
    """Return the probability that none of ``members`` samples is drawn (hypergeometric distribution)."""
    others = count - members
    if others < size:
        return 0.0
    return exp(lgamma(others + 1) - lgamma(others - size + 1) - lgamma(count + 1) + lgamma(count - size + 1))
