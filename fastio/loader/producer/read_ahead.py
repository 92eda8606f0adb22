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
from fastio.loader.producer.producer import Submitted
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.samplers.windows import Windows, ranges
from fastio.store.files import Nearing
from fastio.store.files.together import joined_spans
from fastio.types.spans import Spans

__all__ = ["WindowReader"]

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
        nbytes = int(self.sizes(members).sum())
        if nbytes > available_memory():
            return batches
        firsts = np.arange(0, len(members), max(1, _JOB_BYTES * len(members) // max(1, nbytes)), dtype=np.int64)
        stops = np.append(firsts[1:], len(members))
        at_once, last = np.zeros_like(firsts), np.full_like(firsts, len(batches.indices))
        return replace(batches, windows=Windows(firsts, stops, at_once, last, self._members))

    def run(self, batches: Batches, submitted: Iterator[Submitted]) -> Iterator[Submitted]:
        """Yield from ``submitted``, the producer of these batches; before each one, what comes after it is read."""
        if batches.windows is None or len(batches) == 0 or not self._fields:
            return submitted
        return self._run(batches, batches.windows, submitted)

    def _run(self, batches: Batches, windows: Windows, submitted: Iterator[Submitted]) -> Iterator[Submitted]:
        pool = _native.ThreadPool(1)
        jobs: deque[Nearing] = deque()
        mean = self.mean_bytes(batches)
        asked, cuts = self.asked_before(batches, windows, mean)
        coming = dict(zip(asked.tolist(), pairwise(cuts.tolist()), strict=True))
        try:
            for number in range(len(batches)):
                if number in coming:
                    jobs.extend(self._ask(windows.part(*coming[number]), mean, pool))
                    while jobs and (jobs[0].done or len(jobs) > _MOST_JOBS):
                        jobs.popleft()  # if too many wait, the samples of the first ones have come by now
                yield next(submitted)
        finally:
            for job in jobs:
                job.cancel()
            pool.close()

    def mean_bytes(self, batches: Batches) -> int:
        """Return the size of a sample: that of the first ones stands for all."""
        return int(self.sizes(batches.indices[:_LOOKED_AT]).mean()) + 1

    def asked_before(
        self, batches: Batches, windows: Windows, mean: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return when which windows are asked for: those from ``cuts[k]`` up to ``cuts[k + 1]`` before batch
        ``asked[k]`` is begun.
        """
        ahead = max(1, self._dataset.store.files.ahead_bytes // mean)
        asked, bounds = [], [0]
        for number, stop in enumerate(batches.cuts[1:].tolist()):
            if bounds[-1] < stop + ahead // 2:  # not for every batch
                asked.append(number)
                bounds.append(stop + ahead)
        return np.array(asked, np.int64), np.searchsorted(windows.needed, bounds)

    def _ask(self, windows: Windows, mean: int, pool: _native.ThreadPool) -> Iterator[Nearing]:
        """Yield jobs that let the kernel read these runs, in this order."""
        if len(windows.starts) == 0:
            return
        spans, _ = self.extents(windows, mean)
        for start, stop in pairwise(self.job_cuts(spans, np.array([0, len(spans)])).tolist()):
            yield self._dataset.store.files.read_ahead(spans.part(start, stop), pool=pool)

    @staticmethod
    def job_cuts(spans: Spans, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Return where jobs begin, and the end of the last one; ``groups`` are the cuts of spans that are asked for at
        the same time, none of them empty.
        """
        ends = np.cumsum(spans.sizes)
        before = np.repeat((ends - spans.sizes)[groups[:-1]], np.diff(groups))
        is_new = np.diff((ends - before) // _JOB_BYTES, prepend=0) != 0
        is_new[groups[:-1]] = True
        return np.append(np.flatnonzero(is_new), len(spans))

    def extents(self, windows: Windows, mean: int) -> tuple[Spans, NDArray[np.int64]]:
        """
        Return the bytes of each run, from its first sample to the end of its last one, field after field; and the
        number of the run that each span belongs to. ``mean`` is the size of a sample.

        Of a run that is not a stretch of one file, or mostly other samples' bytes, return the bytes of every sample;
        also if some fields are not asked for, because their bytes may lie between.
        """
        runs = np.arange(len(windows.starts))
        if len(self._fields) < len(self._dataset.store.schema.payload):
            return self._samples_of(windows, runs)
        first = self._spans(windows.at(windows.starts))
        last = self._spans(windows.at(windows.stops - 1))
        sizes = last.starts + last.sizes - first.starts
        fields = len(self._fields)
        most = np.repeat(_MOST_SPREAD * mean * (windows.stops - windows.starts), fields)
        is_whole = ((first.shard == last.shard) & (sizes >= 0) & (sizes <= most)).reshape(-1, fields).all(axis=1)
        whole = Spans(first.buffers, first.shard, first.starts, sizes)
        if is_whole.all():
            return whole, np.repeat(runs, fields)
        others, run = self._samples_of(windows, np.flatnonzero(~is_whole))
        whole = whole.at(np.flatnonzero(np.repeat(is_whole, fields)))
        runs = np.concatenate((np.repeat(np.flatnonzero(is_whole), fields), run))
        by_run = np.argsort(runs, kind="stable")
        return joined_spans([whole, others]).at(by_run), runs[by_run]

    def _samples_of(self, windows: Windows, runs: NDArray[np.int64]) -> tuple[Spans, NDArray[np.int64]]:
        """Return the bytes of every sample of these runs, and the run of each span."""
        starts, stops = windows.starts[runs], windows.stops[runs]
        return self._spans(windows.at(ranges(starts, stops))), np.repeat(runs, (stops - starts) * len(self._fields))

    def _spans(self, samples: NDArray[np.int64]) -> Spans:
        """Return the spans of these samples: of the first sample all fields, then of the second, ..."""
        store, fields = self._dataset.store, len(self._fields)
        spans = joined_spans([store.spans(name, samples, checksums=False) for name in self._fields])
        return spans if fields == 1 else spans.at(np.arange(len(spans)).reshape(fields, -1).T.reshape(-1))

    def sizes(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes of each of these samples."""
        sizes: NDArray[np.int64] = self._spans(samples).sizes.reshape(-1, len(self._fields)).sum(axis=1)
        return sizes
