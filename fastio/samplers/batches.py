"""Which samples make which batch: what a sampler plans for an epoch, and what a loader's producer works from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.order import Division, Shuffle, epoch_order

__all__ = ["BatchSampler", "Batches", "OrderSampler", "even_cuts"]


@dataclass(frozen=True, slots=True)
class Batches:
    """
    Batch k consists of the samples ``indices[cuts[k]:cuts[k + 1]]``.

    ``indices`` is int64, ``cuts`` int64 with one entry more than there are batches; it begins with 0 and ascends.
    Over all ranks, ``repeated`` samples come once more in the epoch, and ``dropped`` do not come. ``random_ids``, one
    an index, tell the repetitions of a sample that is drawn several times apart (see ``repeats``); None: each sample
    is its index.
    """

    indices: NDArray[np.int64]
    cuts: NDArray[np.int64]
    repeated: int = 0
    dropped: int = 0
    random_ids: NDArray[np.int64] | None = None

    @property
    def ids(self) -> NDArray[np.int64]:
        """What the random numbers of transforms depend on, besides seed and epoch: ``(len(indices),)``."""
        return self.indices if self.random_ids is None else self.random_ids

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def part(self, start: int, stop: int) -> Batches:
        """The batches from ``start`` up to ``stop``, or up to the last one."""
        cuts = self.cuts[start : stop + 1]
        if len(cuts) == 0:
            return Batches(self.indices[:0], np.zeros(1, np.int64))
        part = slice(cuts[0], cuts[-1])
        ids = None if self.random_ids is None else self.random_ids[part]
        return Batches(self.indices[part], cuts - cuts[0], random_ids=ids)

    def slices(self) -> Iterator[slice]:
        """The place of each batch in ``indices``."""
        bounds = self.cuts.tolist()
        return map(slice, bounds[:-1], bounds[1:])


@runtime_checkable
class BatchSampler(Protocol):
    """
    What a loader asks which samples make its batches: a pure function of the epoch.

    All ranks plan equally many batches. ``configuration`` is what must be equal for a batch's number to mean the
    same samples again: plain values for JSON.
    """

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def count(self, epoch: int) -> int:
        """Batches of one rank in an epoch."""
        ...

    def plan(self, epoch: int) -> Batches:
        """This rank's batches of an epoch."""
        ...

    def configuration(self) -> dict[str, Any]: ...


class OrderSampler:
    """Batches of equal size from the order of an epoch, see ``order``; ``sizes`` gives the bytes of all samples."""

    def __init__(
        self,
        division: Division,
        *,
        rank: int,
        shuffle: Shuffle,
        seed: int,
        sizes: Callable[[], NDArray[np.int64]],
    ) -> None:
        self.division = division
        self.rank = rank
        self.world_size = division.world_size
        self.shuffle = shuffle
        self.seed = seed
        self._measure = sizes
        self._sizes: NDArray[np.int64] | None = None

    def count(self, epoch: int) -> int:
        """Batches of one rank in an epoch."""
        return self.division.batches

    def plan(self, epoch: int) -> Batches:
        """This rank's batches of an epoch; the sizes are looked up once."""
        if self._sizes is None:
            every = np.arange(self.division.count, dtype=np.int64)
            self._sizes = self._measure() if self.shuffle is True else every
        order = epoch_order(self._sizes, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        division = self.division
        cuts = even_cuts(division.samples, division.batch_size)
        return Batches(division.share(order, self.rank), cuts, division.repeated, division.dropped)

    def configuration(self) -> dict[str, Any]:
        """What names the order and how it is divided."""
        return {
            "samples": self.division.count,
            "batch_size": self.division.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "world_size": self.world_size,
            "uneven": self.division.uneven,
            "drop_last": self.division.drop_last,
        }


def even_cuts(count: int, batch_size: int) -> NDArray[np.int64]:
    """Where batches of equal size begin, and where the last one, perhaps shorter, ends."""
    return np.minimum(np.arange(-(-count // batch_size) + 1, dtype=np.int64) * batch_size, count)
