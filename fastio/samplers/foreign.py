"""Samplers of the user's, such as torch's: draws their epochs in a way that can be repeated."""

from __future__ import annotations

import operator
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.lazy import torch_class, torch_if_there
from fastio.samplers.batches import Batches, random_ids, repetitions
from fastio.samplers.order import Division, Uneven, consumed_after
from fastio.samplers.position import whole_consumed
from fastio.samplers.share import Share

__all__ = [
    "ForeignBatchSampler",
    "ForeignDraw",
    "own_share",
]


Order = TypeVar("Order")

# A sampler that yields more than this many indices per sample is considered endless.
_MOST_A_SAMPLE = 1000
_MOST = 1_000_000

# What draws nothing: torch is not imported to seed it.
_WITHOUT_TORCH = (list, tuple, range, np.ndarray)

# One draw at a time: the global generators are the process's, and a loader may be iterated over in several threads.
_drawing = threading.RLock()


class Epochs(Generic[Order]):
    """
    The epochs of a user's iterable; ``read`` turns the list of each into the order.

    While an epoch is drawn, the global generators of torch, NumPy and Python are seeded from seed and epoch, and the
    sampler's own generators continue from where the epoch before left them. So all ranks draw the same, and so does a
    resumed training. ``set_epoch`` is called if there is one. The latest epoch is kept.
    """

    def __init__(
        self, iterable: Iterable[Any], *, option: str, count: int, seed: int, read: Callable[[list[Any], int], Order]
    ) -> None:
        self.name = f"{option}={type(iterable).__name__}"
        if isinstance(iterable, Iterator):
            raise TypeError(
                f"{self.name}: an iterator yields only one epoch: pass list(...) of it, or an object whose __iter__ "
                "starts over"
            )
        if not isinstance(iterable, Iterable):
            raise TypeError(f"{self.name}: expected an iterable, such as one of torch's samplers")
        self._iterable = iterable
        self._seed = seed
        self._read = read
        self._most = _MOST_A_SAMPLE * count + _MOST
        self._generators = own_generators(iterable)
        self._states = [snapshot(self._generators)]  # the generators' states at the start of each epoch
        self._latest: tuple[int, Order] | None = None

    @property
    def length(self) -> int | None:
        """Its ``len``; None if it has none."""
        try:
            return len(self._iterable) if isinstance(self._iterable, Sized) else None
        except TypeError:  # torch's Sampler declares a length that subclasses need not have
            return None

    def order(self, epoch: int) -> Order:
        """
        Return what it yields in this epoch. Raises ValueError if it is endless or its length differs from its
        ``len``.
        """
        with _drawing:
            if self._latest is None or self._latest[0] != epoch:
                # Without generators of its own, no epoch depends on earlier ones.
                for passed in range(len(self._states) - 1, epoch) if self._generators else ():
                    self._draw(passed)
                items = self._draw(epoch)
                if self.length not in (None, len(items)):
                    raise ValueError(
                        f"{self.name}: yields {len(items)} items, but its len() is {self.length}: correct its __len__"
                    )
                self._latest = epoch, self._read(items, epoch)
            return self._latest[1]

    def _draw(self, epoch: int) -> list[Any]:
        for part in parts_of(self._iterable):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        if self._generators:
            restore(self._generators, self._states[epoch])
        with seeded(self._seed, epoch, torchs=not isinstance(self._iterable, _WITHOUT_TORCH)):
            items = list(islice(iter(self._iterable), self._most + 1))
        if len(items) > self._most:
            raise ValueError(
                f"{self.name}: has yielded {self._most} items and does not end: make it end after an epoch "
                "(itertools.islice)"
            )
        if self._generators and len(self._states) == epoch + 1:
            self._states.append(snapshot(self._generators))
        return items

    def indices(self, items: Sequence[Any], count: int) -> NDArray[np.int64]:
        """
        Return positions below ``count``, int64. Raises TypeError for other types and IndexError for other numbers.
        """
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
        """Return the sampler's own length, or that of the epoch if it has none."""
        length = self._epochs.length
        return len(self.order(epoch)) if length is None else length

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return positions in the order of the epoch."""
        return self._epochs.order(epoch)

    def _positions(self, items: list[Any], epoch: int) -> NDArray[np.int64]:
        return self._epochs.indices(items, self._samples)

    def order_crc32(self, epoch: int) -> int:
        """Return a checksum of an epoch's order: a resumed training must have the same."""
        return _native.crc32(self.order(epoch))

    def configuration(self) -> dict[str, Any]:
        """Return what is known of the order; the order itself is compared when a state is loaded."""
        return {"samples": self._samples, "sampler": self._epochs.name.partition("=")[2], "seed": self._seed}


class ForeignBatchSampler:
    """
    A BatchSampler of the lists of indices that torch's ``batch_sampler=`` yields.

    Whole batches are dealt to the ranks in turn. What is left over is filled up with the first batches ("pad" and
    "repeat") or left out ("drop"). With ``is_own``, it already yields this rank's batches.

    An epoch can be continued by another number of ranks: ``consumed`` counts the batches that all ranks have had, or,
    with ``is_own``, those of one rank, and then the number of ranks must stay.
    """

    def __init__(
        self, sampler: Iterable[Any], *, samples: int, seed: int, share: Share, uneven: Uneven, is_own: bool
    ) -> None:
        self._epochs = Epochs(sampler, option="batch_sampler", count=samples, seed=seed, read=self._batches)
        self.rank, self.world_size = share.rank, share.world_size
        self._samples = samples
        self._seed = seed
        self._is_own = is_own
        self._parts = 1 if is_own else share.world_size
        self._uneven: Uneven = uneven
        self._division(0)  # refuses unknown values

    def for_ranks(self, share: Share) -> ForeignBatchSampler:
        """Return what deals the same batches to other ranks; not of a sampler with ``is_own``."""
        other = copy(self)
        other.rank, other.world_size, other._parts = share.rank, share.world_size, share.world_size
        return other

    def _division(self, batches: int, consumed: int | None = None) -> Division:
        """Return the division of the batches, each treated as a sample, of which some have been consumed."""
        return Division(batches, 1, self._parts, self._uneven, start=consumed or 0)

    def _count(self, epoch: int) -> int:
        """Return the number of all ranks' batches in an epoch."""
        length = self._epochs.length
        return len(self._epochs.order(epoch)[1]) if length is None else length

    def count(self, epoch: int, consumed: int | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return self._division(self._count(epoch), consumed).samples

    def advanced(self, epoch: int, consumed: int | None, batches: int) -> int:
        """Return how many batches of the user's have been consumed after so many more of each rank."""
        return self._division(self._count(epoch), consumed).consumed(batches)

    def checked(self, epoch: int, consumed: Any) -> int:
        """Return the number of batches of a state. Raises ValueError if the epoch has fewer."""
        return whole_consumed(consumed, self._count(epoch))

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> int:
        """Return how many batches of the user's had been consumed after so many of each rank."""
        known = {**state, "batch_size": 1, "drop_last": False, **({"world_size": 1} if self._is_own else {})}
        return consumed_after(known, self._count(epoch), batches)

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        order, lengths = self._epochs.order(epoch)
        counts = repetitions(order)
        ends = np.concatenate(([0], np.cumsum(lengths)))
        division, rank = self._division(len(lengths), consumed), self.rank if self._parts > 1 else 0
        mine = division.share(np.arange(len(lengths), dtype=np.int64), rank)
        sizes = lengths[mine]
        cuts = np.concatenate(([0], np.cumsum(sizes)))
        chosen = np.repeat(ends[mine] - cuts[:-1], sizes) + np.arange(cuts[-1])
        ids = None if counts is None else random_ids(order, counts)[chosen]
        repeated, dropped = self._uneven_samples(lengths, division)
        padding = int(sizes[-1]) if division.padding(rank) else 0
        return Batches(order[chosen], cuts, repeated, dropped, random_ids=ids, padding=padding)

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch: see WholeEpochs; None if the user's sampler draws one rank's part."""
        if self._parts < self.world_size:
            return None
        order, _ = self._epochs.order(epoch)
        return order[: len(order) - dropped]

    def _batches(self, items: list[Any], epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return all ranks' indices and the size of each batch. Raises TypeError or ValueError for anything but lists of
        indices.
        """
        name = self._epochs.name
        lists = [list(batch) if isinstance(batch, Iterable) else batch for batch in items]
        for number, batch in enumerate(lists):
            if not isinstance(batch, list):
                raise TypeError(f"{name}: yields {batch!r}: expected lists of indices; pass single indices as sampler=")
            if not batch:
                raise ValueError(f"{name}: batch {number} of epoch {epoch} is empty: leave it out")
        flat = self._epochs.indices([index for batch in lists for index in batch], self._samples)
        return flat, np.array([len(batch) for batch in lists], np.int64)

    def _uneven_samples(self, sizes: NDArray[np.int64], division: Division) -> tuple[int, int]:
        """Return how many samples, over all ranks, are in batches that come twice, and in batches that do not come."""
        dropped = int(sizes[len(sizes) - division.dropped :].sum()) if division.dropped else 0
        return int(np.resize(sizes, division.repeated).sum()) if division.repeated else 0, dropped

    def order_crc32(self, epoch: int) -> int:
        """Return a checksum of an epoch's batches: a resumed training must have the same."""
        order, lengths = self._epochs.order(epoch)
        return _native.crc32(lengths, _native.crc32(order))

    def configuration(self) -> dict[str, Any]:
        """
        Return what is known of the batches; the batches themselves are compared when a state is loaded.

        The world size belongs to it if the user's sampler divides the samples among the ranks.
        """
        return {
            "samples": self._samples,
            "batch_sampler": self._epochs.name.partition("=")[2],
            "seed": self._seed,
            **({"world_size": self.world_size} if self._is_own else {}),
        }

    def division_options(self) -> dict[str, Any]:
        """Return how the batches are divided among ranks."""
        return {"world_size": self.world_size, "uneven": self._uneven}


def own_share(sampler: object) -> tuple[int, int] | None:
    """
    Return rank and world size of a sampler that yields one rank's part, such as DistributedSampler; None for others.
    """
    for part in parts_of(sampler):
        rank, world_size = getattr(part, "rank", None), getattr(part, "num_replicas", None)
        if isinstance(rank, int) and isinstance(world_size, int) and world_size > 1:
            return rank, world_size
    return None


# The random generators behind a user's sampler: its own, and the global ones, seeded for one draw.

_DEEPEST = 8  # depth of samplers within samplers, which may refer back to themselves

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs

    Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def own_generators(sampler: object) -> list[Generator]:
    """Return the generators that a sampler and the samplers within it keep as attributes, each once."""
    generators: dict[int, Generator] = {}
    kinds = np.random.Generator, np.random.RandomState, random.Random, torch_class("Generator")
    for part in parts_of(sampler):
        for value in getattr(part, "__dict__", {}).values():
            if isinstance(value, kinds):
                generators[id(value)] = value
    return list(generators.values())


def parts_of(sampler: object) -> list[object]:
    """Return a sampler and the samplers within it, from the outermost inwards."""
    parts: list[object] = []
    part: object | None = sampler
    while part is not None and len(parts) < _DEEPEST:
        parts.append(part)
        part = next((value for name in ("batch_sampler", "sampler") if (value := getattr(part, name, None))), None)
    return parts


def snapshot(generators: list[Generator]) -> list[Any]:
    """Return the state of each generator."""
    return [_state(generator) for generator in generators]


def restore(generators: list[Generator], states: list[Any]) -> None:
    """Restore the state of each generator."""
    for generator, state in zip(generators, states, strict=True):
        if _is_torchs(generator):
            generator.set_state(state)
        elif isinstance(generator, np.random.Generator):
            generator.bit_generator.state = state
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        else:
            generator.setstate(state)


def _is_torchs(generator: Generator) -> TypeIs[torch.Generator]:
    return isinstance(generator, torch_class("Generator"))


def _state(generator: Generator) -> Any:
    if _is_torchs(generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return generator.getstate()


@contextmanager
def seeded(seed: int, epoch: int, *, torchs: bool) -> Iterator[None]:
    """
    Seed the global CPU generators of NumPy and Python, and with ``torchs`` that of torch, from seed and epoch; restore
    them afterwards.

    torch is imported for that where it is installed: what is drawn may be the first to import it.
    """
    module = torch_if_there() if torchs else None
    generator = None if module is None else module.default_generator
    numbers = np.random.SeedSequence((seed, epoch)).generate_state(4).tolist()
    state = None if generator is None else generator.get_state()
    before = np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's
    try:
        if generator is not None:
            # Not torch.manual_seed: it would seed the generators of GPUs too.
            generator.manual_seed(numbers[0] | numbers[1] << 32)
        np.random.seed(numbers[2])  # noqa: NPY002
        random.seed(numbers[3])
        yield
    finally:
        if generator is not None and state is not None:
            generator.set_state(state)
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])
