"""Batches and samplers: which samples make which batch, planned per epoch; a loader's producer works from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.choice import Choice, Kind, choose, full_kind, report
from fastio.samplers.cost import Costs
from fastio.samplers.lanes import LaneOrder, Windows
from fastio.samplers.memory import PageCache, page_cache
from fastio.samplers.order import MOST_HELD, Division, Shuffle, block_order, consumed_after, full_order, keyed_order
from fastio.samplers.position import whole_consumed
from fastio.types.shuffle_report import ShuffleReport
from fastio.types.spans import numbers_within

__all__ = [
    "BatchSampler",
    "Batches",
    "ChosenOrder",
    "Computed",
    "ElasticSampler",
    "OrderSampler",
    "WholeEpochs",
    "element_ids",
    "even_cuts",
    "random_ids",
    "repetitions",
    "split_ids",
]


class Computed:
    """
    Samples ``start`` up to ``stop`` of a rank's epoch, computed where they are looked at.

    ``samples(start, stop)`` returns any of them, int64. ``array`` keeps all of them in memory from then on.
    """

    def __init__(self, samples: Callable[[int, int], NDArray[np.int64]], start: int, stop: int) -> None:
        self._samples, self._start, self._stop = samples, start, stop
        self._held: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self._stop - self._start

    def part(self, start: int, stop: int) -> Computed:
        """Return some of them."""
        return Computed(self._samples, self._start + start, self._start + stop)

    def array(self) -> NDArray[np.int64]:
        """Return all of them, ``(len,)``."""
        if self._held is None:
            self._held = self._samples(self._start, self._stop)
        return self._held


@dataclass(frozen=True, slots=True)
class Batches:
    """
    The plan of an epoch: batch k consists of the samples ``indices[cuts[k]:cuts[k + 1]]``.

    ``order`` are these samples, int64, or what computes them: an epoch of very many holds none, so look at a part of
    it, or at ``count``. ``cuts`` is int64, has one entry more than there are batches, starts with 0 and ascends.
    Over all ranks, ``repeated`` samples come once more than they should and ``dropped`` samples do not come; the last
    ``padding`` samples of this rank are among the repeated, or those at the positions ``padding``, int64, ascending.
    ``windows`` says what to read ahead if samples come from
    many positions at once; None: the samples themselves. ``random_ids``, one per index, tell repetitions of the same
    sample apart (see ``repeats``); None: no sample is repeated. ``parts`` are the numbers of the parts of samples that
    come instead of whole ones, int64, one per index (see ``Split``); None: whole ones.
    """

    order: NDArray[np.int64] | Computed
    cuts: NDArray[np.int64]
    repeated: int = 0
    dropped: int = 0
    windows: Windows | None = None
    random_ids: NDArray[np.int64] | None = None
    padding: int | NDArray[np.int64] = 0
    parts: NDArray[np.int64] | None = None

    @property
    def indices(self) -> NDArray[np.int64]:
        """The samples of all batches, ``(count,)``."""
        return self.order.array() if isinstance(self.order, Computed) else self.order

    def samples(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the samples from position ``start`` up to ``stop``, without computing others."""
        return self.order.part(start, stop).array() if isinstance(self.order, Computed) else self.order[start:stop]

    @property
    def count(self) -> int:
        """The number of samples in all batches."""
        return len(self.order)

    @property
    def ids(self) -> NDArray[np.int64]:
        """What random numbers of transforms depend on, besides seed and epoch: ``(count,)``."""
        return self.indices if self.random_ids is None else self.random_ids

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def part(self, start: int, stop: int) -> Batches:
        """
        Return the batches from ``start`` up to ``stop``, or up to the last one, without what they repeat and drop.
        """
        return self._cut(self.cuts[start : stop + 1], self.samples)

    def rest(self, start: int) -> Batches:
        """As ``part``, of all batches from ``start`` on; samples that are computed are not computed yet."""
        return self._cut(self.cuts[start:], self.order.part if isinstance(self.order, Computed) else self.samples)

    def _cut(self, cuts: NDArray[np.int64], between: Callable[[int, int], NDArray[np.int64] | Computed]) -> Batches:
        if len(cuts) == 0:
            return Batches(np.empty(0, np.int64), np.zeros(1, np.int64))
        first, last = int(cuts[0]), int(cuts[-1])
        windows = None if self.windows is None else self.windows.after(first)
        ids = None if self.random_ids is None else self.random_ids[first:last]
        parts = None if self.parts is None else self.parts[first:last]
        return Batches(between(first, last), cuts - first, windows=windows, random_ids=ids, parts=parts)

    def after(self, start: int) -> Batches:
        """Return the batches from ``start`` on, with what the last step repeats and drops if any is left."""
        rest = self.rest(start)
        if len(rest) == 0 and start:
            return rest
        padding = self.padding
        if not isinstance(padding, int):
            padding = self.padding_within(rest.count)
        return replace(rest, repeated=self.repeated, dropped=self.dropped, padding=padding)

    def padding_within(self, samples: int) -> NDArray[np.int64]:
        """Return which of this rank's last ``samples`` are among the repeated: positions, from the first of them."""
        if isinstance(self.padding, int):
            return np.arange(samples - min(samples, self.padding), samples, dtype=np.int64)
        places = self.padding - (self.count - samples)
        return places[places >= 0]

    def slices(self) -> Iterator[slice]:
        """Return the slice of ``indices`` for each batch."""
        bounds = self.cuts.tolist()
        return map(slice, bounds[:-1], bounds[1:])

    def each(self) -> Iterator[Batches]:
        """Return each batch as a plan of its own, so that no more is computed than that."""
        return (self.part(number, number + 1) for number in range(len(self)))


@runtime_checkable
class BatchSampler(Protocol):
    """
    Tells a loader which samples make its batches: a pure function of the epoch.

    All ranks plan the same number of batches. Two samplers with equal ``configuration`` (plain values for JSON) give
    the same samples for the number of a batch.
    """

    @property
    def rank(self) -> int:
        """The rank whose batches it plans, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        ...

    def count(self, epoch: int) -> int:
        """Return the number of batches of one rank in an epoch."""
        ...

    def plan(self, epoch: int) -> Batches:
        """Return this rank's batches of an epoch."""
        ...

    def configuration(self) -> dict[str, Any]:
        """Return what decides on the samples, as plain values for JSON."""
        ...


@runtime_checkable
class ElasticSampler(BatchSampler, Protocol):
    """
    A BatchSampler whose epoch can be continued by another number of ranks, in batches of another size.

    ``consumed`` is what all ranks together have had of an epoch, as plain values for JSON; None is nothing. Its form
    is the sampler's own: for an order, the number of samples. ``configuration`` is what must be equal for it to mean
    the same samples; ``division_options`` is the rest, which may change from one start of a training to the next.
    """

    def count(self, epoch: int, consumed: Any = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        ...

    def plan(self, epoch: int, consumed: Any = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        ...

    def advanced(self, epoch: int, consumed: Any, batches: int) -> Any:
        """Return what has been consumed when each rank has had so many batches of ``plan(epoch, consumed)``."""
        ...

    def checked(self, epoch: int, consumed: Any) -> Any:
        """Return the ``consumed`` of a state. Raises ValueError if it is none for this epoch."""
        ...

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> Any:
        """
        Return what was consumed after so many batches of one rank, for a state that counts them.

        ``state`` has the options of that time (versions 1 and 2 of a loader's state). Raises ValueError for options
        that this sampler does not know.
        """
        ...

    def division_options(self) -> dict[str, Any]:
        """Return how an epoch is divided among ranks and batches: plain values for JSON."""
        ...


class ChosenOrder(Protocol):
    """An order that was chosen for the samples, which a state keeps: ``order`` in its sampler's configuration."""

    def checked_order(self, order: object) -> dict[str, Any] | None:
        """
        Return the order of a state in its own form; None if the options alone decide. Raises ValueError if it is not
        one.
        """
        ...

    def adopt(self, order: object) -> None:
        """Use the order of a state from now on. Raises ValueError if it is not one."""
        ...

    @property
    def is_held(self) -> bool:
        """
        Whether samples come in random order from a store that stays in memory, so that it may be read end to end
        first.
        """
        ...

    def settle(self) -> None:
        """Read sizes and labels now if they are still needed: the store is about to be closed."""
        ...

    def report(self) -> ShuffleReport | None:
        """Return what ``shuffle=True`` chose and what it costs; None for other orders."""
        ...


class OrderSampler:
    """
    Cuts the order of an epoch into batches of equal size.

    With ``shuffle=True``, the order is chosen from the ``sizes`` (bytes, ``(n,)``, stored order) and ``labels``
    (``(n, ...)`` or None) of all samples and from ``memory``, the bytes that stay in memory: see ``choice``. Sizes
    and labels are read once, when the first epoch is planned or the configuration is asked for; sizes only if their sum
    is not enough, which ``total`` returns where it is known without them. ``slices`` may be set to the part of each
    step that each rank takes in an order in lanes (see ``by_node``); None: its own. With ``costs``, each step is dealt
    by them instead.
    """

    def __init__(  # noqa: PLR0913 - what an order is made of
        self,
        division: Division,
        *,
        rank: int,
        shuffle: Shuffle,
        seed: int,
        sizes: Callable[[], NDArray[np.int64]],
        total: Callable[[], int] | None = None,
        labels: Callable[[], NDArray[Any] | None] = lambda: None,
        memory: Callable[[], PageCache] | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.division = division
        self._costs = costs
        self.rank = rank
        self.slices: Sequence[int] | None = None
        self.world_size = division.world_size
        self.shuffle = shuffle
        self.seed = seed
        self._measure = sizes
        self._measure_total = total
        self._sum: int | None = None
        self._labels = labels
        self._memory = memory or partial(page_cache, division.world_size)
        self._sizes: NDArray[np.int64] | None = None
        self._choice: Choice | None = None
        self._held = self._memory() if shuffle is not False else PageCache(0)
        self._full = full_kind(division.count)
        self._report: ShuffleReport | None = None

    def count(self, epoch: int, consumed: int | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return replace(self.division, start=consumed or 0).batches

    def advanced(self, epoch: int, consumed: int | None, batches: int) -> int:
        """Return the number of samples consumed after so many more batches."""
        return replace(self.division, start=consumed or 0).consumed(batches)

    def checked(self, epoch: int, consumed: Any) -> int:
        """Return the number of samples of a state. Raises ValueError if there are fewer."""
        return whole_consumed(consumed, self.division.count)

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> int:
        """Return the number of samples consumed after so many batches of a state's options."""
        return consumed_after(state, self.division.count, batches)

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        ranks, slices = (range(number, number + 1) for number in (self.rank, self._slice))
        return next(self.plans(epoch, ranks, consumed, slices=slices))

    @property
    def _slice(self) -> int:
        """The part of each step that this rank takes in an order in lanes."""
        return self.rank if self.slices is None else self.slices[self.rank]

    def plans(
        self, epoch: int, ranks: range, consumed: int | None = None, *, slices: range | None = None
    ) -> Iterator[Batches]:
        """
        Yield what ``plan`` returns on each of these neighbouring ranks; their order is computed once.

        ``slices`` are the parts of a step that they take in an order in lanes; None: those with their own numbers.
        """
        division = replace(self.division, start=consumed or 0)
        cuts = even_cuts(division.samples, division.batch_size)
        choice = self._chosen() if self.shuffle is True else None
        batches = partial(Batches, cuts=cuts, repeated=division.repeated, dropped=division.dropped)
        if self._costs is not None and division.world_size > 1:
            in_lanes = self.lane_order(epoch) if self.has_lanes else None
            order = self._whole_order(choice, epoch) if in_lanes is None else in_lanes.order
            stop = division.start + division.full_steps * division.world_size * division.batch_size
            for rank in ranks:
                share = self._costs.positions(order[division.start : stop], division, rank)
                windows = None if in_lanes is None else in_lanes.windows(share)
                yield batches(order[share], windows=windows, padding=division.padding(rank))
            return
        if choice is not None and choice.lanes is not None:
            lanes = self.lane_order(epoch)
            if division.world_size == 1:
                windows = lanes.all_windows().after(division.start)
                yield batches(division.share(lanes.order, 0), windows=windows, padding=division.padding(0))
                return
            for rank, share in zip(ranks, lanes.shares(division, ranks, slices), strict=True):
                indices = lanes.sequence[lanes.places[share]]
                yield batches(indices, windows=lanes.windows(share), padding=division.padding(rank))
            return
        at = self._computed(choice, epoch)
        if at is not None:
            for rank in ranks:
                computed = Computed(partial(_samples, at, division, rank), 0, division.samples)
                yield batches(computed, padding=division.padding(rank))
            return
        order = self._whole_order(choice, epoch)
        for rank in ranks:
            yield batches(division.share(order, rank), padding=division.padding(rank))

    @property
    def has_lanes(self) -> bool:
        """Whether the order is one in lanes."""
        return self.shuffle is True and self._chosen().lanes is not None

    def lane_order(self, epoch: int) -> LaneOrder:
        """Return the order in lanes of an epoch. Only if it ``has_lanes``."""
        lanes = self._chosen().lanes
        assert lanes is not None
        return LaneOrder(lanes, self.division.count, seed=self.seed, epoch=epoch)

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64]:
        """Return all samples of an epoch: see WholeEpochs."""
        if not dropped:
            return np.arange(self.division.count, dtype=np.int64)
        choice = self._chosen() if self.shuffle is True else None
        order = self.lane_order(epoch).order if self.has_lanes else self._whole_order(choice, epoch)
        return order[: len(order) - dropped]

    def _whole_order(self, choice: Choice | None, epoch: int) -> NDArray[np.int64]:
        """Return all samples of an epoch, for orders without lanes."""
        count = self.division.count
        if choice is not None and choice.kind == "blocks":
            return block_order(self._bytes(), seed=self.seed, epoch=epoch)
        if self.shuffle is False:
            return np.arange(count, dtype=np.int64)
        if self._is_keyed(choice):
            return keyed_order(np.arange(count, dtype=np.int64), count, seed=self.seed, epoch=epoch)
        return full_order(count, seed=self.seed, epoch=epoch)

    def _computed(self, choice: Choice | None, epoch: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]] | None:
        """Return what computes the samples at some places of an order of very many; None for others, which are held."""
        count = self.division.count
        if self.shuffle is False:
            return (lambda places: places) if count > MOST_HELD else None
        return partial(keyed_order, count=count, seed=self.seed, epoch=epoch) if self._is_keyed(choice) else None

    @property
    def is_keyed(self) -> bool:
        """Whether the order is one of which nothing is held."""
        return self.shuffle is not False and self._is_keyed(self._chosen() if self.shuffle is True else None)

    def _is_keyed(self, choice: Choice | None) -> bool:
        return (self._full if choice is None else choice.kind) == "keyed"

    def _chosen(self) -> Choice:
        """Return the order chosen for ``shuffle=True``; asks for the memory again until the ranks agree on it."""
        if self._choice is None or not self._held.is_final:
            held = self._memory()
            if self._choice is None or held.nbytes != self._held.nbytes:
                self._report = None
                self._choice = choose(self._total(), self._labels, self.division, seed=self.seed, memory=held)
            self._held = held
        return self._choice

    @property
    def is_held(self) -> bool:
        """Whether the store may be read end to end first: see ``ChosenOrder``."""
        return self._is_on_one_machine() and self.fits_memory

    @property
    def fits_memory(self) -> bool:
        """Whether samples come in random order from a store that the memory of one machine holds."""
        if self.shuffle is False or (self.shuffle is True and self._chosen().kind not in ("full", "keyed")):
            return False
        return 0 < self._total() <= self._held.largest_whole

    def _is_on_one_machine(self) -> bool:
        """Whether all ranks share the page cache, as far as torchrun tells."""
        return str(self.world_size) in ("1", os.environ.get("LOCAL_WORLD_SIZE"))

    def settle(self) -> None:
        """Read sizes and labels now if they are still needed: the store is about to be closed."""
        if self.shuffle is True:
            self._total()
            if self._chosen().kind not in ("full", "keyed"):
                self._bytes()

    def _total(self) -> int:
        if self._sum is None:
            self._sum = int(self._bytes().sum()) if self._measure_total is None else self._measure_total()
        return self._sum

    def _bytes(self) -> NDArray[np.int64]:
        if self._sizes is None:
            self._sizes = self._measure()
        return self._sizes

    def checked_order(self, order: object) -> dict[str, Any] | None:
        """Return the order of a state in its own form: see ``ChosenOrder``."""
        if self.shuffle is True:
            return Choice.from_json(order, samples=self.division.count).to_json()
        return None if order is None else Choice(self._full_of(order)).to_json()

    def adopt(self, order: object) -> None:
        """
        Use the order of a state (its ``configuration()["order"]``) from now on. Raises ValueError if it is not one.

        None: the state is of a version that drew every full shuffle.
        """
        if self.shuffle is not True:
            self._full = self._full_of(order)
            return
        self._choice, self._report = Choice.from_json(order, samples=self.division.count), None
        self._held = replace(self._held, is_final=True)

    @staticmethod
    def _full_of(order: object) -> Kind:
        """Return the kind of a full shuffle of a state. Raises ValueError if it is none."""
        if order is None:
            return "full"
        if order == Choice("keyed").to_json():
            return "keyed"
        raise ValueError(f"order={order!r} in the state: expected the kind keyed: the state is damaged")

    def report(self) -> ShuffleReport | None:
        """Return what ``shuffle=True`` chose and what it costs; None for other orders."""
        if self.shuffle is not True:
            return None
        choice = self._chosen()
        if self._report is None:
            memory = self._held.nbytes
            self._report = report(choice, self._total(), self._bytes, self.division, seed=self.seed, memory=memory)
        return self._report

    def configuration(self) -> dict[str, Any]:
        """Return what identifies the order; ``order`` is the choice for ``shuffle=True``, or a keyed order."""
        options: dict[str, Any] = {"samples": self.division.count, "shuffle": self.shuffle, "seed": self.seed}
        choice = self._chosen() if self.shuffle is True else None
        if choice is not None or self.is_keyed:
            options["order"] = (choice or Choice(self._full)).to_json()
        return options

    def division_options(self) -> dict[str, Any]:
        """Return how the order is divided among ranks and batches."""
        return self.division.to_json() | ({} if self._costs is None else {"cost_crc32": self._costs.checksum})


def _samples(
    at: Callable[[NDArray[np.int64]], NDArray[np.int64]], division: Division, rank: int, start: int, stop: int
) -> NDArray[np.int64]:
    """Return a rank's samples from ``start`` up to ``stop`` of an order that is computed."""
    return at(division.places(rank, start, stop))


def even_cuts(count: int, batch_size: int) -> NDArray[np.int64]:
    """Return the starts of batches of equal size, and the end of the last one, which may be shorter."""
    return np.minimum(np.arange(-(-count // batch_size) + 1, dtype=np.int64) * batch_size, count)


# WholeEpochs: samplers that tell all samples of an epoch, whichever rank gets them.


@runtime_checkable
class WholeEpochs(Protocol):
    """
    A sampler that knows what an epoch should give over all ranks. Receipts are compared with that, so it must not be
    joined from plans, whose mistakes it would repeat.
    """

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """
        Return the index of each sample of an epoch, as often as it comes, in any order; None if that is unknown.

        Nothing is repeated for the ranks' sake, and the last ``dropped`` samples of the order are left out.
        """
        ...


# Tells repetitions of a sample within an epoch apart, so that each gets its own random numbers.

_INDEX_BITS = 40  # a store holds fewer samples than this; the bits above count the repetitions


def repetitions(indices: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """
    Return how often each index has come before, ``(n,)``, or None if no index comes twice.

    >>> repetitions(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    if len(indices) == 0 or int(np.bincount(indices).max()) < 2:
        return None
    by_index = np.argsort(indices, kind="stable")
    grouped = indices[by_index]
    firsts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    lengths = np.diff(np.concatenate((firsts, [len(indices)])))
    counts = np.empty(len(indices), np.int64)
    counts[by_index] = np.arange(len(indices)) - np.repeat(firsts, lengths)
    return counts


def random_ids(indices: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for an index and its repetition; the index itself if that is 0."""
    return indices | (counts << _INDEX_BITS)


_SPREAD = 0x1E3779B97F4A7C15  # odd: elements of one sample get numbers far apart
_MOST_ID = (1 << 63) - 1


def element_ids(ids: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    Return the ids of the elements of samples with these ids, so many of each, for random numbers: they depend on sample
    and position, those of the first element on the sample alone.
    """
    elements: NDArray[np.int64] = (np.repeat(ids, counts) + numbers_within(counts) * _SPREAD) & _MOST_ID
    return elements


def split_ids(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices and repetitions that ``random_ids`` joined."""
    return ids & ((1 << _INDEX_BITS) - 1), ids >> _INDEX_BITS
