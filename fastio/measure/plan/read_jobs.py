"""What ranks ask a store's files for in an epoch, and when: by the rules of the loader that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.options import PREFETCH_BATCHES, WorkOptions
from fastio.loader.producer.choose import choose_collate
from fastio.loader.producer.chunks import ChunkReader
from fastio.loader.producer.held_reader import HeldReader
from fastio.loader.producer.producer import ProducerContext
from fastio.loader.producer.read_ahead import WindowReader
from fastio.loader.producer.tokens import TokenProducer
from fastio.samplers.batches import Batches
from fastio.samplers.windows import Windows, ranges
from fastio.store.files.together import joined_spans
from fastio.types.spans import Spans

__all__ = ["JobPlanner", "ReadJobs"]


@dataclass(frozen=True, slots=True)
class ReadJobs:
    """
    Jobs of reading, in the order in which they are asked for; arrays are int64.

    Job k is asked for before batch ``asked[k]`` begins, and batch ``needed[k]`` is the first that needs its samples,
    ``samples[cuts[k]:cuts[k + 1]]`` of the store. It takes ``reads[k]`` reads of ``nbytes[k]`` bytes in all.
    """

    asked: NDArray[np.int64]
    needed: NDArray[np.int64]
    reads: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    samples: NDArray[np.int64]
    cuts: NDArray[np.int64]

    @classmethod
    def of_node(cls, ranks: Sequence[ReadJobs]) -> Self:
        """Join the jobs of ranks that go through the epoch side by side."""
        asked = np.concatenate([jobs.asked for jobs in ranks])
        order = np.argsort(asked, kind="stable")
        lengths = np.concatenate([np.diff(jobs.cuts) for jobs in ranks])
        ends = np.cumsum(lengths)
        samples = np.concatenate([jobs.samples for jobs in ranks])
        return cls(
            asked[order],
            np.concatenate([jobs.needed for jobs in ranks])[order],
            np.concatenate([jobs.reads for jobs in ranks])[order],
            np.concatenate([jobs.nbytes for jobs in ranks])[order],
            samples[ranges((ends - lengths)[order], ends[order])],
            np.concatenate(([0], np.cumsum(lengths[order]))),
        )


class JobPlanner:
    """
    Plans the jobs of ranks that read one dataset.

    Orders in lanes, and stores that memory holds, are read by windows (``WindowReader``); others in chunks of batches
    (``ChunkReader``, or ``TokenProducer`` for token ids alone).
    """

    def __init__(self, dataset: FastDataset) -> None:
        self._dataset = dataset
        self._fields = list(dataset.readers)
        self._reader = WindowReader(dataset)
        self._held = HeldReader(dataset, depth=PREFETCH_BATCHES)
        self._chunks = _chunk_rule(dataset)

    def jobs(self, batches: Batches, *, is_first_held: bool) -> ReadJobs:
        """
        Return the jobs for one rank's batches of an epoch; ``is_first_held`` if it is the first of a store that stays
        in memory.
        """
        if not self._fields or len(batches) == 0:
            none = np.empty(0, np.int64)
            return ReadJobs(none, none, none, none, none, np.zeros(1, np.int64))
        if self._dataset.store.files.holds:
            batches = self._held.with_windows(batches)
            return self._in_chunks(batches) if batches.windows is None else self._in_units(batches, batches.windows)
        if is_first_held:
            batches = WindowReader(self._dataset).with_windows(batches, is_held=True)
        return self._in_chunks(batches) if batches.windows is None else self._in_windows(batches)

    def _in_units(self, batches: Batches, windows: Windows) -> ReadJobs:
        """Return the jobs of files that hold what is read ahead: one a unit."""
        plan = self._held.plan(batches)
        lengths = windows.stops - windows.starts
        return ReadJobs(
            plan.asked,
            np.searchsorted(batches.cuts, windows.needed, side="right") - 1,
            np.diff(plan.cuts),
            plan.nbytes,
            windows.samples(),
            np.append(0, np.cumsum(lengths)),
        )

    def _in_windows(self, batches: Batches) -> ReadJobs:
        windows = batches.windows
        assert windows is not None
        mean = self._reader.mean_bytes(batches)
        asked, groups = self._reader.asked_before(batches, windows, mean)
        spans, run_of = self._reader.extents(windows.part(0, int(groups[-1])), mean)
        # From groups of runs to groups of spans, without empty ones.
        groups = np.searchsorted(run_of, groups)
        filled = np.flatnonzero(np.diff(groups))
        asked, groups = asked[filled], np.append(groups[filled], groups[-1])
        jobs = self._reader.job_cuts(spans, groups)
        first_run = run_of[jobs[:-1]]
        lengths = windows.stops - windows.starts
        return ReadJobs(
            asked[np.searchsorted(groups, jobs[:-1], side="right") - 1],
            np.searchsorted(batches.cuts, windows.needed[first_run], side="right") - 1,
            *_counted(spans, jobs),
            windows.part(0, int(run_of[-1]) + 1).samples(),
            np.append(np.cumsum(lengths)[first_run] - lengths[first_run], lengths[: run_of[-1] + 1].sum()),
        )

    def _in_chunks(self, batches: Batches) -> ReadJobs:
        size = self._chunks.chunk_batches(batches)
        first = np.arange(0, len(batches), size, dtype=np.int64)
        cuts = np.append(batches.cuts[first], batches.cuts[-1])
        store, count = self._dataset.store, len(self._fields)
        spans = joined_spans([store.spans(name, batches.indices, checksums=False) for name in self._fields])
        if count > 1:
            spans = spans.at(np.arange(len(spans)).reshape(count, -1).T.reshape(-1))
        asked = np.maximum(first - self._chunks.chunks_ahead * size, 0)
        return ReadJobs(asked, first, *_counted(spans, cuts * count), batches.indices, cuts)


def _chunk_rule(dataset: FastDataset) -> ChunkReader | TokenProducer:
    """Return who says how many batches are read together."""
    collate = choose_collate(dataset, None, None)
    options = WorkOptions(0, PREFETCH_BATCHES, "raise", None, None).for_producer(dataset_verify=dataset.verify)
    context = ProducerContext(dataset, options, collate=collate)
    if TokenProducer.accepts(context):
        return TokenProducer(context)
    return ChunkReader(dataset.store, list(dataset.readers))


def _counted(spans: Spans, cuts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the reads and bytes of each group of spans."""
    reads, nbytes = np.empty(len(cuts) - 1, np.int64), np.empty(len(cuts) - 1, np.int64)
    _native.count_stretches(spans, cuts, reads, nbytes)
    return reads, nbytes
