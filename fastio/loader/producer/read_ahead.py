"""Reads the windows of an order before their samples are needed, for any producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.producer.producer import PendingBatch
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.samplers.windows import Windows
from fastio.store.files.together import joined_spans
from fastio.types.spans import Spans

__all__ = ["WindowReader"]

# Ahead of the batch that is started: what the native producer looks up by pread, two chunks, and one more.
_AHEAD_BYTES = 48 << 20
_JOB_BYTES = 64 << 20  # bytes per call to the kernel, and what can be dropped with the iteration
_MOST_JOBS = 256
_MOST_SPREAD = 8  # times the samples' own bytes
_LOOKED_AT = 1024  # samples whose sizes stand for all


class WindowReader:
    """
    Reads ahead for one loader, in a thread of its own, through the page cache.

    Batches with ``windows`` need a few samples each from many places: read one by one, these would be random reads. A
    window is read whole when its first sample comes near.
    """

    def __init__(self, dataset: FastDataset, indices: NDArray[np.int64] | None = None) -> None:
        self._dataset = dataset
        self._fields = list(dataset.readers)
        # The samples of a subset, in stored order; None: all.
        self._members = None if indices is None else np.unique(indices)
        self._has_read_all = False

    def with_windows(self, batches: Batches, *, is_held: bool) -> Batches:
        """
        Return the batches; if memory holds all samples (``is_held``), give them one window for everything, the first
        time.

        The store is then read from first to last while its samples come in any order.
        """
        if self._has_read_all or batches.windows is not None or not is_held or not self._fields:
            return batches
        self._has_read_all = True
        members = np.arange(len(self._dataset.store)) if self._members is None else self._members
        nbytes = int(self._sizes(members).sum())
        if nbytes > available_memory():
            return batches
        firsts = np.arange(0, len(members), max(1, _JOB_BYTES * len(members) // max(1, nbytes)), dtype=np.int64)
        stops = np.append(firsts[1:], len(members))
        at_once, last = np.zeros_like(firsts), np.full_like(firsts, len(batches.indices))
        return replace(batches, windows=Windows(firsts, stops, at_once, last, self._members))

    def run(self, batches: Batches, submitted: Iterator[PendingBatch]) -> Iterator[PendingBatch]:
        """Yield from ``submitted``, the producer of these batches; before each one, what comes after it is read."""
        if batches.windows is None or len(batches) == 0 or not self._fields:
            return submitted
        return self._run(batches, batches.windows, submitted)

    def _run(self, batches: Batches, windows: Windows, submitted: Iterator[PendingBatch]) -> Iterator[PendingBatch]:
        pool = _native.ThreadPool(1)
        jobs: deque[_native.Job] = deque()
        some = self._sizes(batches.indices[:_LOOKED_AT])
        mean = int(some.mean()) + 1
        ahead = max(1, _AHEAD_BYTES // mean)
        asked, cuts = 0, batches.cuts
        try:
            for cut in cuts[1:].tolist():
                if asked < cut + ahead // 2:  # not for every batch
                    jobs.extend(self._ask(windows.begun_in(asked, cut + ahead), mean, pool))
                    asked = cut + ahead
                    while jobs and (jobs[0].done or len(jobs) > _MOST_JOBS):
                        jobs.popleft()  # if too many wait, the samples of the first ones have come by now
                yield next(submitted)
        finally:
            for job in jobs:
                job.cancel()
            pool.close()

    def _ask(self, windows: Windows, mean: int, pool: _native.ThreadPool) -> Iterator[_native.Job]:
        """Yield jobs that let the kernel read these runs, in this order; ``mean`` is the size of a sample."""
        if len(windows.starts) == 0:
            return
        spans = self._extents(windows, mean)
        pieces = np.cumsum(spans.sizes) // _JOB_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
        for start, stop in pairwise(cuts):
            yield self._dataset.store.files.read_ahead(spans.part(start, stop), pool=pool)

    def _extents(self, windows: Windows, mean: int) -> Spans:
        """
        Return the bytes of each run, from its first sample to the end of its last one.

        If that is not a stretch of one file, or mostly other samples' bytes, return the bytes of every sample; also if
        some fields are not asked for, because their bytes may lie between.
        """
        if len(self._fields) < len(self._dataset.store.schema.payload):
            return self._spans(windows.samples())
        first = self._spans(windows.at(windows.starts))
        last = self._spans(windows.at(windows.stops - 1))
        sizes = last.starts + last.sizes - first.starts
        most = np.tile(_MOST_SPREAD * mean * (windows.stops - windows.starts), len(self._fields))
        if (first.shard == last.shard).all() and (sizes >= 0).all() and (sizes <= most).all():
            return Spans(first.buffers, first.shard, first.starts, sizes)
        return self._spans(windows.samples())

    def _spans(self, samples: NDArray[np.int64]) -> Spans:
        """Return the spans of these samples: of all of them the first field, then of all the second, ..."""
        store = self._dataset.store
        return joined_spans([store.spans(name, samples, checksums=False) for name in self._fields])

    def _sizes(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes of each of these samples."""
        sizes: NDArray[np.int64] = self._spans(samples).sizes.reshape(len(self._fields), -1).sum(axis=0)
        return sizes
