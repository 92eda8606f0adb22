"""What the epochs of a training will read, counted by the code that loads, without reading a sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Event
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import FastioError
from fastio.loader.options import PREFETCH_BATCHES, WorkOptions
from fastio.loader.producer.chunks import ChunkReader
from fastio.loader.producer.producer import ProducerContext
from fastio.loader.producer.read_ahead import HeldReader, WindowReader
from fastio.loader.producer.registry import choose_collate
from fastio.loader.producer.tokens import TokenProducer
from fastio.loader.selection.selection import sample_bytes, sample_labels, shuffle_memory
from fastio.machine import available_cpus, available_memory
from fastio.samplers.batches import Batches, OrderSampler
from fastio.samplers.choice import Classes, judged_steps
from fastio.samplers.lanes import Windows, ranges
from fastio.samplers.memory import PageCache, held_memory, page_cache
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.store.files.fetch import joined_spans
from fastio.types.metrics import HeldReads, ShuffleReport
from fastio.types.spans import Spans
from fastio.types.units import counted, number

__all__ = [
    "EpochPlan",
    "EpochWaits",
    "NodeReads",
    "PlanOptions",
    "ReadJobs",
    "TrainingPlan",
    "held_epoch",
    "simulate_waits",
]


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


# When a training would wait for its disks: its reads, in their order, at given rates of steps and of reading.


@dataclass(frozen=True, slots=True)
class EpochWaits:
    """
    How long all ranks wait in an epoch of ``seconds``.

    ``start_s`` is the wait for the first batch, before which nothing can be read ahead; ``later_s`` are all other
    waits together, in ``steps`` steps, the first of them ``first_step`` (None: none waits).
    """

    seconds: float
    start_s: float
    later_s: float
    steps: int
    first_step: int | None


def simulate_waits(
    nodes: Sequence[tuple[ReadJobs, NDArray[np.int64]]],
    steps_s: Sequence[float],
    *,
    depth: int,
    disk_bytes_per_s: float,
) -> EpochWaits:
    """
    Let steps of these lengths wait for the jobs of all nodes.

    ``nodes`` has each node's jobs, and the bytes of each that its disk must read. A disk reads one job after the
    other, in the order in which they are asked for. Batches are asked for ``depth`` batches ahead, as a loader does.
    A step begins when all of its jobs are done on all nodes: ranks wait for each other.
    """
    disks = [_NodeDisk(jobs, missed, disk_bytes_per_s) for jobs, missed in nodes]
    done = [0.0] * len(steps_s)  # when the last job for each step is done
    now = start_s = later_s = 0.0
    waiting: list[int] = []
    for step, length in enumerate(steps_s):
        for disk in disks:
            disk.begin(step + depth, now, done)
        wait = max(0.0, done[step] - now)
        if step == 0:
            start_s = wait
        elif wait > 0:
            later_s += wait
            waiting.append(step)
        now += wait + length
    return EpochWaits(now, start_s, later_s, len(waiting), waiting[0] if waiting else None)


class _NodeDisk:
    """A node's disk, and the jobs that it has not begun."""

    def __init__(self, jobs: ReadJobs, missed: NDArray[np.int64], bytes_per_s: float) -> None:
        self._asked = jobs.asked.tolist()
        self._needed = jobs.needed.tolist()
        self._seconds = (missed / bytes_per_s).tolist()
        self._next = 0
        self._free_at = 0.0

    def begin(self, batch: int, now: float, done: list[float]) -> None:
        """Begin the jobs that are asked for before ``batch`` begins, and note in ``done`` when they end."""
        while self._next < len(self._asked) and self._asked[self._next] <= batch:
            self._free_at = max(self._free_at, now) + self._seconds[self._next]
            needed = self._needed[self._next]
            done[needed] = max(done[needed], self._free_at)
            self._next += 1


# What ranks ask a store's files for in an epoch, and when: by the rules of the loader that reads them.


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


# What an epoch takes from a store behind a URL: requests, bytes and memory, by arithmetic.


def held_epoch(dataset: FastDataset, batch_size: int = 256) -> HeldReads | None:
    """
    Return what one rank's epoch with ``shuffle=True`` takes; None if the page cache keeps the files, and where each
    sample would be a request of its own.
    """
    if not dataset.store.files.holds or not dataset.readers:
        return None
    order = OrderSampler(
        Division(len(dataset), batch_size),
        rank=0,
        shuffle=True,
        seed=0,
        sizes=partial(sample_bytes, dataset, is_cached=False),
        labels=partial(sample_labels, dataset),
        memory=shuffle_memory(dataset, 1),
    )
    reader = HeldReader(dataset, depth=PREFETCH_BATCHES)
    batches = reader.with_windows(order.plan(0))
    return None if batches.windows is None else reader.plan(batches).reads()
