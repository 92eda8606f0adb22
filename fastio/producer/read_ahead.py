"""Has the windows of an order read before the samples in them are needed, whoever makes the batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset import FastDataset
from fastio.machine import available_memory
from fastio.producer.base import UnderWay
from fastio.samplers.batches import Batches
from fastio.samplers.windows import Windows
from fastio.spans import Spans

__all__ = ["WindowReader"]

# Ahead of the batch that is begun: what the native producer looks up by pread, two chunks, and one more.
_AHEAD_BYTES = 48 << 20
_JOB_BYTES = 64 << 20  # of one call to the kernel, and what can be dropped with the iteration
_MOST_JOBS = 256
_LOOKED_AT = 1024  # samples whose sizes stand for all


class WindowReader:
    """
    Reads ahead for one loader, by a thread of its own, through the page cache.

    Batches with ``windows`` need samples from many places at once, a few of each: read one by one, these would be
    random reads. A window is read whole when its first sample comes near.
    """

    def __init__(self, dataset: FastDataset, indices: NDArray[np.int64] | None = None) -> None:
        self._dataset = dataset
        self._members = None if indices is None else np.unique(indices)  # of a subset, in stored order; None: all
        self._has_read_all = False

    def with_windows(self, batches: Batches, *, is_held: bool) -> Batches:
        """
        The batches, and where memory holds all samples (``is_held``), these as one window, the first time.

        Then they are read from the first to the last of the store while they come in any order.
        """
        if self._has_read_all or batches.windows is not None or not is_held:
            return batches
        self._has_read_all = True
        members = np.arange(len(self._dataset.store)) if self._members is None else self._members
        if int(self._spans(members).sizes.sum()) > available_memory():
            return batches
        first, stop, last = (np.array([number], np.int64) for number in (0, len(members), len(batches.indices)))
        return replace(batches, windows=Windows(first, stop, first, last, self._members))

    def run(self, batches: Batches, submitted: Iterator[UnderWay]) -> Iterator[UnderWay]:
        """``submitted``, whose batches these are; before it is asked for one, what comes after that is read."""
        if batches.windows is None or len(batches) == 0:
            return submitted
        return self._run(batches, batches.windows, submitted)

    def _run(self, batches: Batches, windows: Windows, submitted: Iterator[UnderWay]) -> Iterator[UnderWay]:
        pool = _native.ThreadPool(1)
        jobs: deque[_native.Job] = deque()
        some = self._spans(batches.indices[:_LOOKED_AT]).sizes
        ahead = max(1, _AHEAD_BYTES * len(some) // max(1, int(some.sum())))
        asked, cuts = 0, batches.cuts
        try:
            for cut in cuts[1:].tolist():
                if asked < cut + ahead // 2:  # not for every batch
                    jobs.extend(self._ask(windows.begun_in(asked, cut + ahead), pool))
                    asked = cut + ahead
                    while jobs and (jobs[0].done or len(jobs) > _MOST_JOBS):
                        jobs.popleft().wait()
                yield next(submitted)
        finally:
            for job in jobs:
                job.cancel()
            pool.close()

    def _ask(self, samples: NDArray[np.int64], pool: _native.ThreadPool) -> Iterator[_native.Job]:
        """Jobs that have the kernel read these samples, in this order; through a mapping that may break unseen."""
        if len(samples) == 0:
            return
        spans = self._spans(samples)
        pieces = np.cumsum(spans.sizes) // _JOB_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
        for start, stop in pairwise(cuts):
            part = spans.part(start, stop)
            looks = self._dataset.files is None
            yield _native.read_ahead(part.buffers, part.shard, part.starts, part.sizes, pool=pool, looks=looks)

    def _spans(self, samples: NDArray[np.int64]) -> Spans:
        return self._dataset.store.spans(self._dataset.reader.field.name, samples, checksums=False)
