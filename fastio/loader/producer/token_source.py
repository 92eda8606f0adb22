"""Reads stored token ids ahead of the jobs that widen them: into the page cache, or by pread into our own memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.store.files import Fetched, Nearing
from fastio.types.spans import Spans

__all__ = ["Located", "PendingRead", "TokenSource"]

# Bytes requested from the kernel per call when a whole store is read ahead.
_READ_AHEAD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Located:
    """Samples of some batches in readable memory; ``unread`` is the status of each, if some could not be read."""

    batches: Batches
    spans: Spans
    unread: NDArray[np.int32] | None = None

    def part(self, number: int) -> Located:
        """Return one of the batches."""
        part = slice(*self.batches.cuts[number : number + 2].tolist())
        unread = None if self.unread is None else self.unread[part]
        return Located(self.batches.part(number, number + 1), self.spans.at(part), unread)


@dataclass(frozen=True, slots=True)
class PendingRead:
    """The samples of some batches on their way into memory."""

    batches: Batches
    fetched: Fetched

    def wait(self) -> Located:
        """Wait for the samples, and return where they are."""
        return Located(self.batches, *self.fetched.wait())


class TokenSource:
    """
    Looks up the samples of batches, and reads them in threads of its own.

    Samples lie anywhere in the file, because batches have similar lengths. For a mapped store, the kernel is asked to
    read all of it at the start, or if that is more than half of the available memory, the samples of each look-up:
    page faults would wait for each of them.

    ``checksums``: samples come with those to compare them with, now or as they arrive from an object store.
    """

    def __init__(self, dataset: FastDataset, *, checksums: bool) -> None:
        self._checksums = checksums
        self._store = dataset.store
        self._field = dataset.reader.field.name
        self._pool = _native.ThreadPool(self._store.files.threads)
        self._staging = _native.BufferRing(3)  # being read, being widened, with the loop (if samples are bad)
        self._jobs: list[Nearing] = []
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
        """The bytes of ids as stored."""
        return self._staging.allocated_bytes

    def look_up(self, batches: Batches, *, is_read: bool) -> PendingRead:
        """
        Begin to read these samples; ``is_read`` means that the page cache has them, or that something else reads
        them.
        """
        spans = self._store.spans(self._field, batches.indices, checksums=self._checksums)
        is_near = self._is_whole or is_read
        fetched = self._store.files.fetch(spans, pool=self._pool, ring=self._staging, is_near=is_near)
        return PendingRead(batches, fetched)

    def close(self) -> None:
        """Stop the threads; what was not yet requested from the kernel is dropped."""
        for job in self._jobs:
            job.cancel()
        self._pool.close()
