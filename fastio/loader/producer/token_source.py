"""Brings stored token ids into memory ahead of the jobs that widen them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.store.files import Fetched
from fastio.types.spans import Spans

__all__ = ["Located", "PendingRead", "TokenSource"]

# What the kernel is asked for by one call when it reads a whole store ahead.
_READ_AHEAD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Located:
    """Samples of some batches where they can be looked at; ``unread``: the status of each, where some could not."""

    batches: Batches
    spans: Spans
    unread: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class PendingRead:
    """The samples of some batches on their way into memory."""

    batches: Batches
    fetched: Fetched

    def wait(self) -> Located:
        """Where they lie then."""
        return Located(self.batches, *self.fetched.wait())


class TokenSource:
    """
    Looks up the samples of batches, and has them read in threads of its own.

    Samples lie anywhere in the file, for batches are of similar lengths. Files that are read in place are read ahead as
    a whole at the beginning, or, if that is more than half of the memory at hand, for each look-up: otherwise faults
    would wait for each sample.
    """

    def __init__(self, dataset: FastDataset, *, checksums: bool) -> None:
        self._checksums = checksums
        self._store = dataset.store
        self._field = dataset.reader.field.name
        self._pool = _native.ThreadPool(self._store.files.threads)
        self._staging = _native.BufferRing(3)  # being read, being widened, with the loop (where samples are bad)
        self._jobs: list[_native.Job] = []
        self._is_whole = self._store.files.in_place and self._read_whole()

    def _read_whole(self) -> bool:
        spans = self._store.spans(self._field, np.arange(len(self._store)), checksums=False)
        if int(spans.sizes.sum()) > available_memory() // 2:
            return False
        pieces = np.cumsum(spans.sizes) // _READ_AHEAD_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
        read_ahead = self._store.files.read_ahead
        self._jobs = [read_ahead(spans.part(start, stop), pool=self._pool) for start, stop in pairwise(cuts)]
        return True

    @property
    def buffer_bytes(self) -> int:
        """Memory of ids as stored."""
        return self._staging.allocated_bytes

    def look_up(self, batches: Batches, *, is_read: bool) -> PendingRead:
        """Begin to read these samples; ``is_read``: the page cache has them, or somebody else sees to that."""
        spans = self._store.spans(self._field, batches.indices, checksums=self._checksums)
        is_near = self._is_whole or is_read
        fetched = self._store.files.fetch(spans, pool=self._pool, ring=self._staging, is_near=is_near)
        return PendingRead(batches, fetched)

    def close(self) -> None:
        """End the threads; what the kernel was not yet asked for is dropped."""
        for job in self._jobs:
            job.cancel()
        self._pool.close()
