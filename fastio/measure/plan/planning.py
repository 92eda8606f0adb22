"""TrainingPlan: the epochs of a training on many nodes, planned one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Event

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import FastioError
from fastio.loader.options import PREFETCH_BATCHES
from fastio.loader.selection.chosen import sample_bytes, sample_labels
from fastio.machine import available_cpus, available_memory
from fastio.measure.plan.read_jobs import JobPlanner, ReadJobs
from fastio.measure.plan.waits import EpochWaits, simulate_waits
from fastio.samplers.batches import OrderSampler
from fastio.samplers.held_memory import held_memory
from fastio.samplers.mixing import Classes, judged_steps
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.samplers.page_cache import PageCache, page_cache
from fastio.types.shuffle_report import ShuffleReport
from fastio.types.units import counted, number

__all__ = ["EpochPlan", "NodeReads", "PlanOptions", "TrainingPlan"]

_SAMPLE_BYTES = 100  # of memory while an epoch is planned


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """
    How a training reads: ``nodes`` of ``ranks`` each; ``batch_size``, ``shuffle``, ``seed``, ``drop_last`` and
    ``uneven`` as in FastLoader, a batch being that of one rank.

    ``memory_bytes`` is what ``shuffle=True`` counts on (None: as on this machine). A node's cache keeps
    ``cache_bytes`` of what was read last (None: it has no cache). ``samples_per_s`` is the rate of all ranks together,
    ``disk_bytes_per_s`` what a node's disk reads; with both, waits are simulated.
    """

    nodes: int = 1
    ranks: int = 1
    batch_size: int = 256
    shuffle: Shuffle = True
    seed: int = 0
    drop_last: bool = False
    uneven: Uneven = "pad"
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    samples_per_s: float | None = None
    disk_bytes_per_s: float | None = None

    @property
    def world_size(self) -> int:
        """The number of ranks on all nodes."""
        return self.nodes * self.ranks


@dataclass(frozen=True, slots=True)
class NodeReads:
    """
    What a node's ranks ask for in an epoch: ``reads`` contiguous reads of ``asked_bytes``. Its disk reads
    ``read_bytes`` of them; its cache has the others.
    """

    reads: int
    asked_bytes: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """
    An epoch: ``steps`` of all ranks, ``samples`` given in all, of which ``repeated`` come once more than they should;
    ``dropped`` do not come.

    ``mixing`` and ``drift`` are those of ``ShuffleReport``, None without labels. ``waits`` is None without rates.
    """

    epoch: int
    steps: int
    samples: int
    repeated: int
    dropped: int
    mixing: float | None
    drift: float | None
    nodes: tuple[NodeReads, ...]
    waits: EpochWaits | None


@dataclass(frozen=True, slots=True)
class _PlannedEpoch:
    """What can be computed of an epoch without those before it."""

    division: Division
    mixing: float | None
    drift: float | None
    nodes: list[ReadJobs]


class TrainingPlan:
    """
    Plans epochs of a training on ``dataset``; nothing of it is read but its index.

    Everything is counted from the batches that ``OrderSampler`` plans for each rank, and from the jobs that the loader
    would make of them. Raises FastioError if an epoch has no batch, or if there are
    more ranks than samples, or more repeated samples than memory holds.
    """

    def __init__(self, dataset: FastDataset, options: PlanOptions) -> None:
        self.options = options
        count = len(dataset)
        if options.world_size > max(1, count):
            raise FastioError(_too_many_ranks(dataset, options))
        self.division = Division(count, options.batch_size, options.world_size, options.uneven, options.drop_last)
        if self.division.repeated * _SAMPLE_BYTES > available_memory() // 2:
            raise FastioError(
                f"{dataset.store.path}: each epoch repeats {counted(self.division.repeated, 'sample')} "
                f"(batch_size={options.batch_size}, uneven={options.uneven!r}), more than memory holds: expected a "
                "smaller batch size or fewer ranks"
            )
        if self.division.batches == 0:
            raise FastioError(_no_batch(dataset, options))
        self.sizes = sample_bytes(dataset, is_cached=False)
        self._labels = partial(sample_labels, dataset)
        if options.memory_bytes is None:
            held = dataset.store.files.holds
            memory = held_memory(options.world_size) if held else page_cache(1)
        else:
            memory = PageCache(options.memory_bytes)
        self._order = OrderSampler(
            self.division,
            rank=0,
            shuffle=options.shuffle,
            seed=options.seed,
            sizes=lambda: self.sizes,
            labels=self._labels,
            memory=lambda: memory,
        )
        self._planner = JobPlanner(dataset)

    @cached_property
    def shuffle(self) -> ShuffleReport | None:
        """What ``shuffle=True`` means for this training; None for other orders."""
        return self._order.report()

    @cached_property
    def is_held(self) -> bool:
        """Whether the memory of each node is expected to hold the store, which comes in random order."""
        return self._order.fits_memory

    @cached_property
    def _classes(self) -> Classes | None:
        labels = self._labels()
        return None if labels is None else Classes.of(labels)

    def epochs(self, count: int) -> Generator[EpochPlan]:
        """
        Yield the plans of epochs 0 to ``count - 1``; a few are planned ahead, in threads.

        Close the iterator to stop the threads: they end after the rank that they are planning.
        """
        options = self.options
        caches = None
        if options.cache_bytes is not None:
            caches = [_native.RecentlyUsed(self.sizes, options.cache_bytes) for _ in range(options.nodes)]
        self._order.settle()
        _ = self._classes  # computed once, not by each thread
        with closing(self._ahead(count)) as ahead:
            for epoch, planned in enumerate(ahead):
                missed = [jobs.nbytes for jobs in planned.nodes]
                if caches is not None:
                    pairs = zip(planned.nodes, caches, strict=True)
                    missed = [_missed(jobs, cache, self.sizes) for jobs, cache in pairs]
                yield self._epoch_plan(epoch, planned, missed)

    def _epoch_plan(self, epoch: int, planned: _PlannedEpoch, missed: list[NDArray[np.int64]]) -> EpochPlan:
        division = planned.division
        nodes = tuple(
            NodeReads(int(jobs.reads.sum()), int(jobs.nbytes.sum()), int(read.sum()))
            for jobs, read in zip(planned.nodes, missed, strict=True)
        )
        return EpochPlan(
            epoch,
            division.batches,
            division.samples * division.world_size,
            division.repeated,
            division.dropped,
            planned.mixing,
            planned.drift,
            nodes,
            self._waits(planned, missed),
        )

    def _waits(self, planned: _PlannedEpoch, missed: list[NDArray[np.int64]]) -> EpochWaits | None:
        options, division = self.options, planned.division
        if options.samples_per_s is None or options.disk_bytes_per_s is None:
            return None
        starts = np.arange(division.batches) * division.batch_size
        sizes = np.minimum(division.batch_size, division.samples - starts) * division.world_size
        return simulate_waits(
            list(zip(planned.nodes, missed, strict=True)),
            (sizes / options.samples_per_s).tolist(),
            depth=PREFETCH_BATCHES,
            disk_bytes_per_s=options.disk_bytes_per_s,
        )

    def _ahead(self, count: int) -> Generator[_PlannedEpoch]:
        """Yield what threads plan, as many epochs at a time as CPUs and memory allow."""
        held = int(available_memory() // 2 // (_SAMPLE_BYTES * max(1, self.division.count)))
        workers = max(1, min(available_cpus(), held, count))
        stop = Event()
        pool = ThreadPoolExecutor(workers)
        try:
            coming: deque[Future[_PlannedEpoch]] = deque()
            for epoch in range(count):
                coming.append(pool.submit(self._planned, epoch, stop))
                if len(coming) == workers:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)  # waits: the dataset may be closed next

    def _planned(self, epoch: int, stop: Event) -> _PlannedEpoch:
        """Plan an epoch of all ranks. Raises CancelledError at the next rank once ``stop`` is set."""
        nodes: list[ReadJobs] = []
        of_node: list[ReadJobs] = []
        shares: list[NDArray[np.int64]] = []
        is_first_held = epoch == 0 and self.is_held and self.options.nodes == 1
        for batches in self._order.plans(epoch, range(self.options.world_size)):
            if stop.is_set():
                raise CancelledError
            of_node.append(self._planner.jobs(batches, is_first_held=is_first_held))
            shares.append(batches.indices)
            if len(of_node) == self.options.ranks:
                nodes.append(ReadJobs.of_node(of_node))
                of_node = []
        return _PlannedEpoch(self.division, *self._mixing(shares), nodes)

    def _mixing(self, shares: list[NDArray[np.int64]]) -> tuple[float | None, float | None]:
        """Return mixing, judged in full steps, and drift of all ranks' samples; None if nothing can be judged."""
        classes, division = self._classes, self.division
        if classes is None or division.full_steps == 0:
            return None, None
        end = division.full_steps * division.batch_size
        full = np.stack([share[:end] for share in shares])
        steps = full.reshape(division.world_size, division.full_steps, division.batch_size).transpose(1, 0, 2)
        order = np.concatenate((steps.reshape(-1), *(share[end:] for share in shares)))
        drift = classes.drift(order[: division.count])
        return classes.worst_mixing(steps[judged_steps(division.full_steps)]), drift


def _too_many_ranks(dataset: FastDataset, options: PlanOptions) -> str:
    count = len(dataset)
    return (
        f"{dataset.store.path}: {number(options.nodes)} x {number(options.ranks)} ranks for "
        f"{counted(count, 'sample')}: expected at most {counted(max(1, count), 'rank')}, as no step has a sample for "
        "each of more; plan fewer nodes or ranks"
    )


def _no_batch(dataset: FastDataset, options: PlanOptions) -> str:
    count = len(dataset)
    what = f"{dataset.store.path}: {counted(count, 'sample')} for {counted(options.world_size, 'rank')}"
    if count == 0:
        return f"{what}: the epoch has no batch at all; expected a store with samples"
    return (
        f"{what} (batch_size={options.batch_size}, drop_last=True): the epoch has no batch at all: its only step is "
        "short, and drop_last leaves it out; plan a smaller batch size or fewer ranks, or keep the short step"
    )


def _missed(jobs: ReadJobs, cache: _native.RecentlyUsed, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of each job that the disk must read: the share of its samples' bytes that the cache lacks."""
    missed = np.empty(len(jobs.asked), np.int64)
    cache.use(jobs.samples, jobs.cuts, missed)
    ends = np.concatenate(([0], np.cumsum(sizes[jobs.samples])))
    own = np.maximum(1, np.diff(ends[jobs.cuts]))
    return np.rint(jobs.nbytes * (missed / own)).astype(np.int64)
