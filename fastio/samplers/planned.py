"""The base of samplers that plan whole epochs: lists of indices for torch's DataLoader, and a position."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.position import GIVEN_UP, check_state, whole, whole_epoch
from fastio.samplers.share import Share, check_resumed_epoch

__all__ = ["PlannedSampler"]

log = logging.getLogger(__name__)

_STATE_VERSION = 1
_LONGEST = (1 << 31) - 1
_SHARED_TWICE = "give it rank=0, world_size=1, or take the loader from fastio.integrations.accelerate.prepare_loader"


class PlannedSampler(ABC):
    """
    A ``batch_sampler`` for torch's DataLoader: yields each batch as a list of ints.

    This is a base class, against the rule of this code base: torch and its users expect the six methods below on the
    sampler itself, and two samplers would repeat them. Each iteration is one epoch; ``set_epoch`` sets its number, as
    with FastLoader. The position counts the batches handed out. A DataLoader with workers asks for some of them
    ahead; FastLoader's own ``state_dict`` does not count those.
    """

    seed: int

    def __init__(self, lengths: ArrayLike, *, rank: int | None, world_size: int | None) -> None:
        self._lengths = _as_lengths(lengths)
        self._share = Share.of(rank, world_size)
        self.rank, self.world_size = self._share.rank, self._share.world_size
        self._checksum = _native.crc32(self._lengths)
        self._next = (0, 0)  # epoch and batch at which the next iteration starts
        self._seen: tuple[int, int] | None = None  # the position of the latest iteration, once it has begun
        self._iterations = 0  # older iterations no longer count
        self._planned: tuple[int, Batches] | None = None

    @abstractmethod
    def _plan(self, epoch: int) -> Batches: ...

    @abstractmethod
    def _rules(self) -> dict[str, Any]:
        """Return what the plan depends on besides lengths, seed and epoch."""
        ...

    def plan(self, epoch: int) -> Batches:
        """Return this rank's batches of an epoch; the latest plan is kept."""
        self._share.check_ranks(f"this {type(self).__name__}")
        if self._planned is None or self._planned[0] != epoch:
            self._planned = epoch, self._plan(epoch)
        return self._planned[1]

    def count(self, epoch: int) -> int:
        """Return the number of batches of one rank in an epoch."""
        return len(self.plan(epoch))

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next epoch."""
        return self.count(self._next[0])

    def __iter__(self) -> Iterator[list[int]]:
        self._forget()
        return self._lists()

    def _lists(self) -> Iterator[list[int]]:
        self._share.check_shared_once(self, _SHARED_TWICE)
        check_resumed_epoch(self, self._next[0])
        self._forget()
        iteration = self._iterations
        epoch, start = self._seen = self._next
        self._next = epoch + 1, 0
        batches = self.plan(epoch)
        for number, place in enumerate(batches.part(start, len(batches)).slices(), start):
            if iteration == self._iterations:
                self._seen = epoch, number + 1
            yield batches.indices[batches.cuts[start] + place.start : batches.cuts[start] + place.stop].tolist()
        if iteration == self._iterations:
            self._seen = epoch + 1, 0

    def _forget(self) -> None:
        """Set the position to the start of the next iteration, whatever running iterations still hand out."""
        self._iterations += 1
        self._seen = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; setting the epoch of a loaded state keeps the position within it."""
        epoch = whole_epoch(epoch)
        if epoch != self._next[0]:
            if self._next[1]:
                log.warning(GIVEN_UP, type(self).__name__, epoch, self._next[0])
            self._next = epoch, 0
            self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration in plain numbers: the next batch not yet handed out."""
        epoch, batch = self._seen or self._next
        return {"version": _STATE_VERSION, "epoch": epoch, "batch": batch, **self.configuration()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Continue the next iteration at that batch. Raises ValueError, naming the differences, for the state of another
        sampler.
        """
        check_state(state, {"version": _STATE_VERSION, **self.configuration()}, owner="sampler")
        epoch = whole_epoch(state.get("epoch", -1))
        count = self.count(epoch)
        batch = whole("batch", state.get("batch", -1), f"0 to {count} in the state", least=0, below=count + 1)
        self._next = epoch, batch
        self._forget()

    def configuration(self) -> dict[str, Any]:
        """Return what must be equal for a batch's number to mean the same samples."""
        values = {
            "sampler": type(self).__name__,
            "samples": len(self._lengths),
            "lengths_crc32": self._checksum,
            "seed": self.seed,
            "world_size": self.world_size,
            **self._rules(),
        }
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

    def _shuffled(self, count: int, epoch: int) -> NDArray[np.int64]:
        """Return the numbers below ``count`` in the random order of an epoch."""
        numbers = np.arange(count, dtype=np.int64)
        _native.shuffle(numbers, self.seed, epoch << 32)
        return numbers

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the plan, which can be computed again."""
        return {**self.__dict__, "_planned": None}


def _as_lengths(lengths: ArrayLike) -> NDArray[np.int32]:
    array = np.asarray(lengths)
    if array.dtype == object and array.ndim == 0:
        raise TypeError(
            f"lengths are a {type(lengths).__name__}: expected integers, one per sample. Lightning puts its own "
            "sampler there: give the Trainer use_distributed_sampler=False, or use a FastDataModule"
        )
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(f"lengths are {array.dtype} {array.shape}: expected integers, one per sample")
    if array.size and not (array.min() >= 0 and array.max() <= _LONGEST):
        raise ValueError(f"lengths go from {array.min()} to {array.max()}: expected 0 to {_LONGEST}")
    return np.ascontiguousarray(array, np.int32)
