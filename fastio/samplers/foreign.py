"""Samplers of the user's, torch's among them: what they draw for an epoch, drawn so that it can be drawn again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.generators import own_generators, parts_of, restore, seeded, snapshot
from fastio.samplers.order import Division, Uneven
from fastio.samplers.repeats import random_ids, repetitions
from fastio.samplers.share import Share

__all__ = ["ForeignBatchSampler", "ForeignDraw", "own_share"]

Order = TypeVar("Order")

# A sampler that goes on after so many indices a sample is taken for one without an end.
_MOST_A_SAMPLE = 1000
_MOST = 1_000_000


class Epochs(Generic[Order]):
    """
    What an iterable of the user's yields in each epoch, as ``read`` makes it of a list.

    An epoch is drawn while the global generators of torch, numpy and Python are seeded by seed and epoch, and those
    that the sampler keeps go on from where the epoch before left them: so all ranks draw the same, and a resumed
    training too. ``set_epoch`` is called where there is one. The latest epoch is kept.
    """

    def __init__(
        self, iterable: Iterable[Any], *, option: str, count: int, seed: int, read: Callable[[list[Any], int], Order]
    ) -> None:
        self.name = f"{option}={type(iterable).__name__}"
        if isinstance(iterable, Iterator):
            raise TypeError(
                f"{self.name}: an iterator yields one epoch only; pass list(...) of it, or an object whose __iter__ "
                f"begins anew"
            )
        if not isinstance(iterable, Iterable):
            raise TypeError(f"{self.name}: expected something to iterate over, as torch's samplers are")
        self._iterable = iterable
        self._seed = seed
        self._read = read
        self._most = _MOST_A_SAMPLE * count + _MOST
        self._generators = own_generators(iterable)
        self._states = [snapshot(self._generators)]  # of each epoch that may begin
        self._latest: tuple[int, Order] | None = None

    @property
    def length(self) -> int | None:
        """What its ``len`` says; None where it has none."""
        try:
            return len(self._iterable) if isinstance(self._iterable, Sized) else None
        except TypeError:  # torch's Sampler promises a length that a subclass need not have
            return None

    def order(self, epoch: int) -> Order:
        """What it yields in this epoch; ValueError where it has no end, or another length than it says."""
        if self._latest is None or self._latest[0] != epoch:
            # Without generators of its own, no epoch depends on those before it.
            for passed in range(len(self._states) - 1, epoch) if self._generators else ():
                self._draw(passed)
            items = self._draw(epoch)
            if self.length not in (None, len(items)):
                raise ValueError(f"{self.name}: yields {len(items)} items, but its len() is {self.length}; correct it")
            self._latest = epoch, self._read(items, epoch)
        return self._latest[1]

    def _draw(self, epoch: int) -> list[Any]:
        for part in parts_of(self._iterable):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        if self._generators:
            restore(self._generators, self._states[epoch])
        with seeded(self._seed, epoch):
            items = list(islice(iter(self._iterable), self._most + 1))
        if len(items) > self._most:
            raise ValueError(
                f"{self.name}: has given {self._most} items and goes on; let it end with an epoch (itertools.islice)"
            )
        if self._generators and len(self._states) == epoch + 1:
            self._states.append(snapshot(self._generators))
        return items

    def indices(self, items: Sequence[Any], count: int) -> NDArray[np.int64]:
        """Positions below ``count``, int64; TypeError for another type, IndexError for another number."""
        try:
            drawn = np.fromiter(map(operator.index, items), np.int64, len(items))
        except TypeError as exc:
            wrong = next(item for item in items if not hasattr(item, "__index__"))
            hint = "; pass lists of indices as batch_sampler=" if isinstance(wrong, (list, tuple)) else ""
            raise TypeError(f"{self.name}: yields {wrong!r}: expected whole numbers{hint}") from exc
        drawn[drawn < 0] += count
        outside = (drawn < 0) | (drawn >= count)
        if outside.any():
            wrong = items[int(outside.argmax())]
            raise IndexError(f"{self.name}: yields {wrong!r}: expected indices of {count} samples")
        return drawn


class ForeignDraw:
    """The order that ``sampler=`` draws in each epoch; see ``Epochs``."""

    def __init__(self, sampler: Iterable[Any], *, samples: int, seed: int) -> None:
        self._epochs = Epochs(sampler, option="sampler", count=samples, seed=seed, read=self._positions)
        self._samples = samples
        self._seed = seed

    def count(self, epoch: int) -> int:
        """The sampler's own length, or that of the epoch."""
        length = self._epochs.length
        return len(self.order(epoch)) if length is None else length

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Positions in the order of the epoch."""
        return self._epochs.order(epoch)

    def _positions(self, items: list[Any], epoch: int) -> NDArray[np.int64]:
        return self._epochs.indices(items, self._samples)

    def order_crc32(self, epoch: int) -> int:
        """Names the order of an epoch: what is resumed must be the same."""
        return _native.crc32(self.order(epoch))

    def configuration(self) -> dict[str, Any]:
        """What can be told of it; the order itself is compared when a state is loaded."""
        return {"samples": self._samples, "sampler": self._epochs.name.partition("=")[2], "seed": self._seed}


class ForeignBatchSampler:
    """
    The lists of indices that torch's ``batch_sampler=`` yields, as a BatchSampler.

    Whole batches are shared out in turn among the ranks; what is left is filled up with the first ones ("pad" and
    "repeat"), or left out ("drop"). One that ``is_own`` yields this rank's batches already.
    """

    def __init__(
        self, sampler: Iterable[Any], *, samples: int, seed: int, share: Share, uneven: Uneven, is_own: bool
    ) -> None:
        self._epochs = Epochs(sampler, option="batch_sampler", count=samples, seed=seed, read=self._batches)
        self.rank, self.world_size = share.rank, share.world_size
        self._samples = samples
        self._seed = seed
        self._parts = 1 if is_own else share.world_size
        self._uneven: Uneven = uneven
        self._division(0)  # refuses what it does not know

    def _division(self, batches: int) -> Division:
        """Of the batches: as if each were a sample."""
        return Division(batches, 1, self._parts, self._uneven)

    def count(self, epoch: int) -> int:
        """Batches of one rank in an epoch."""
        length = self._epochs.length
        return self._division(len(self._epochs.order(epoch)[1]) if length is None else length).samples

    def plan(self, epoch: int) -> Batches:
        """This rank's batches of an epoch."""
        order, lengths = self._epochs.order(epoch)
        counts = repetitions(order)
        ends = np.concatenate(([0], np.cumsum(lengths)))
        division = self._division(len(lengths))
        mine = division.share(np.arange(len(lengths), dtype=np.int64), self.rank if self._parts > 1 else 0)
        sizes = lengths[mine]
        cuts = np.concatenate(([0], np.cumsum(sizes)))
        chosen = np.repeat(ends[mine] - cuts[:-1], sizes) + np.arange(cuts[-1])
        ids = None if counts is None else random_ids(order, counts)[chosen]
        repeated, dropped = self._uneven_samples(lengths, division)
        return Batches(order[chosen], cuts, repeated, dropped, random_ids=ids)

    def _batches(self, items: list[Any], epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All ranks' indices, and how many each batch has; TypeError or ValueError for what is no batch."""
        name = self._epochs.name
        lists = [list(each) if isinstance(each, Iterable) else each for each in items]
        for number, each in enumerate(lists):
            if not isinstance(each, list):
                raise TypeError(f"{name}: yields {each!r}: expected lists of indices; pass indices as sampler=")
            if not each:
                raise ValueError(f"{name}: batch {number} of epoch {epoch} is empty; leave it out")
        flat = self._epochs.indices([index for each in lists for index in each], self._samples)
        return flat, np.array([len(each) for each in lists], np.int64)

    def _uneven_samples(self, sizes: NDArray[np.int64], division: Division) -> tuple[int, int]:
        """Samples of the batches that come twice, and of those that do not come, over all ranks."""
        dropped = int(sizes[len(sizes) - division.dropped :].sum()) if division.dropped else 0
        return int(np.resize(sizes, division.repeated).sum()) if division.repeated else 0, dropped

    def order_crc32(self, epoch: int) -> int:
        """Names the batches of an epoch: what is resumed must be the same."""
        order, lengths = self._epochs.order(epoch)
        return _native.crc32(lengths, _native.crc32(order))

    def configuration(self) -> dict[str, Any]:
        """What can be told of it; the batches themselves are compared when a state is loaded."""
        return {
            "samples": self._samples,
            "batch_sampler": self._epochs.name.partition("=")[2],
            "seed": self._seed,
            "world_size": self.world_size,
            "uneven": self._uneven,
        }


def own_share(sampler: object) -> tuple[int, int] | None:
    """Rank and world size of a sampler that yields one rank's part, as DistributedSampler does; None for others."""
    for part in parts_of(sampler):
        rank, world_size = getattr(part, "rank", None), getattr(part, "num_replicas", None)
        if isinstance(rank, int) and isinstance(world_size, int) and world_size > 1:
            return rank, world_size
    return None
