"""Brings stored token ids into memory ahead of the jobs that widen them: the page cache's, or by pread into our own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.reading import Fetched
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.types.spans import Spans

__all__ = ["Located", "PendingRead", "TokenSource"]

# What the kernel is asked for by one call when it reads a whole store ahead.
_READ_AHEAD_BYTES = 64 << 20
_PREAD_THREADS = 4  # a server answers several questions at once


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
    spans: Spans
    fetched: Fetched | None  # None: they are looked at where they are mapped

    def wait(self) -> Located:
        """Where they lie then."""
        if self.fetched is None:
            return Located(self.batches, self.spans)
        return Located(self.batches, *self.fetched.wait())


class TokenSource:
    """
    Looks up the samples of batches, and has them read in threads of its own.

    Samples lie anywhere in the file, for batches are of similar lengths. Of a mapped store the kernel is asked at the
    beginning to read all of it, or, where that is more than half of the memory at hand, the samples of each look-up:
    faults would wait for each of them.
    """

    def __init__(self, dataset: FastDataset, *, checksums: bool) -> None:
        self._checksums = checksums
        self._store, self._files = dataset.store, dataset.files
        self._field = dataset.reader.field.name
        self._pool = _native.ThreadPool(1 if self._files is None else _PREAD_THREADS)
        self._staging = _native.BufferRing(3)  # being read, being widened, with the loop (where samples are bad)
        self._jobs: list[_native.Job] = []
        self._is_whole = self._files is None and self._read_whole()

    def _read_whole(self) -> bool:
        spans = self._store.spans(self._field, np.arange(len(self._store)), checksums=False)
        if int(spans.sizes.sum()) > available_memory() // 2:
            return False
        pieces = np.cumsum(spans.sizes) // _READ_AHEAD_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
        self._jobs = [self._ask(spans.part(start, stop)) for start, stop in pairwise(cuts)]
        return True

    def _ask(self, spans: Spans) -> _native.Job:
        return _native.read_ahead(spans, pool=self._pool)

    @property
    def buffer_bytes(self) -> int:
        """Memory of ids as stored."""
        return self._staging.allocated_bytes

    def look_up(self, batches: Batches, *, is_read: bool) -> PendingRead:
        """Begin to read these samples; ``is_read``: the page cache has them, or somebody else sees to that."""
        spans = self._store.spans(self._field, batches.indices, checksums=self._checksums)
        fetched = None
        if self._files is not None:
            fetched = self._files.fetch(spans, pool=self._pool, ring=self._staging)
        elif not self._is_whole and not is_read:
            self._jobs = [self._ask(spans)]  # what the look-up before still waits for is dropped
        return PendingRead(batches, spans, fetched)

    def close(self) -> None:
        """End the threads; what the kernel was not yet asked for is dropped."""
        for job in self._jobs:
            job.cancel()
        self._pool.close()
