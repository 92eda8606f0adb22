"""What the epochs of a training will read, counted by the code that loads, without reading a sample."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Event

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import FastioError
from fastio.loader.options import PREFETCH_BATCHES, WorkOptions
from fastio.loader.producer.chunks import READ_ALONE, ChunkReader
from fastio.loader.producer.producer import ProducerContext
from fastio.loader.producer.read_ahead import HeldReader, WindowReader
from fastio.loader.producer.registry import choose_collate
from fastio.loader.producer.tokens import TokenProducer
from fastio.loader.selection.selection import sample_bytes, sample_labels, shuffle_memory
from fastio.machine import available_cpus, available_memory
from fastio.samplers.batches import Batches, OrderSampler
from fastio.samplers.lanes import Windows
from fastio.samplers.memory import PageCache, held_memory, page_cache
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.store.files.fetch import joined_spans
from fastio.store.protocol import extents
from fastio.types.metrics import HeldReads
from fastio.types.shuffle_report import ShuffleReport
from fastio.types.spans import Spans, distinct
from fastio.types.units import counted, number

__all__ = [
    "EpochPlan",
    "NodeReads",
    "PlanOptions",
    "TrainingPlan",
    "held_epoch",
]


_SAMPLE_BYTES = 100  # of memory while an epoch is planned


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """
    How a training reads: ``nodes`` of ``ranks`` each; ``batch_size``, ``shuffle``, ``seed``, ``drop_last`` and
    ``uneven`` as in FastLoader, a batch being that of one rank.

    ``memory_bytes`` is what ``shuffle=True`` counts on (None: as on this machine).
    """

    nodes: int = 1
    ranks: int = 1
    batch_size: int = 256
    shuffle: Shuffle = True
    seed: int = 0
    drop_last: bool = False
    uneven: Uneven = "pad"
    memory_bytes: int | None = None

    @property
    def world_size(self) -> int:
        """The number of ranks on all nodes."""
        return self.nodes * self.ranks


@dataclass(frozen=True, slots=True)
class NodeReads:
    """What a node's ranks ask for in an epoch: ``reads`` contiguous reads of ``asked_bytes``."""

    reads: int
    asked_bytes: int


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """
    An epoch: ``steps`` of all ranks, ``samples`` given in all, of which ``repeated`` come once more than they should;
    ``dropped`` do not come. ``nodes`` has what each node reads.
    """

    epoch: int
    steps: int
    samples: int
    repeated: int
    dropped: int
    nodes: tuple[NodeReads, ...]


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
            labels=partial(sample_labels, dataset),
            memory=lambda: memory,
        )
        self._counter = ReadCounter(dataset)

    @cached_property
    def shuffle(self) -> ShuffleReport | None:
        """What ``shuffle=True`` means for this training; None for other orders."""
        return self._order.report()

    @cached_property
    def is_held(self) -> bool:
        """Whether the memory of each node is expected to hold the store, which comes in random order."""
        return self._order.fits_memory

    def epochs(self, count: int) -> Generator[EpochPlan]:
        """
        Yield the plans of epochs 0 to ``count - 1``, planned in as many threads as CPUs and memory allow.

        Close the iterator to stop the threads: they end after the rank that they are planning.
        """
        held = int(available_memory() // 2 // (_SAMPLE_BYTES * max(1, self.division.count)))
        stop = Event()
        self._order.settle()
        with ThreadPoolExecutor(max(1, min(available_cpus(), held, count))) as pool:  # waits: the dataset may be closed
            try:
                yield from pool.map(partial(self._planned, stop), range(count))
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)

    def _planned(self, stop: Event, epoch: int) -> EpochPlan:
        """Plan an epoch of all ranks. Raises CancelledError at the next rank once ``stop`` is set."""
        options, division = self.options, self.division
        reads = np.zeros((options.nodes, 2), np.int64)
        is_first_held = epoch == 0 and self.is_held and options.nodes == 1
        for rank, batches in enumerate(self._order.plans(epoch, range(options.world_size))):
            if stop.is_set():
                raise CancelledError
            reads[rank // options.ranks] += self._counter.count(batches, is_first_held=is_first_held)
        return EpochPlan(
            epoch,
            division.batches,
            division.samples * division.world_size,
            division.repeated,
            division.dropped,
            tuple(NodeReads(*node) for node in reads.tolist()),
        )


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


# What a rank asks a store's files for in an epoch, by the rules of the loader that reads them.


class ReadCounter:
    """
    Counts what ranks that read one dataset ask for.

    Orders in lanes, and stores that memory holds, are read by windows (``WindowReader``); others, and the first batches
    of those, in chunks of batches (``ChunkReader``, or ``TokenProducer`` for token ids alone). That a mapped store of
    token ids which memory holds is read by ``TokenProducer``, and its samples asked for until it is there, is counted
    as windows.
    """

    def __init__(self, dataset: FastDataset) -> None:
        self._dataset = dataset
        self._fields = list(dataset.readers)
        self._reader = WindowReader(dataset)
        self._held = HeldReader(dataset, depth=PREFETCH_BATCHES)
        self._chunks = _chunk_rule(dataset)

    def count(self, batches: Batches, *, is_first_held: bool) -> tuple[int, int]:
        """
        Return the contiguous reads and their bytes for one rank's batches of an epoch; ``is_first_held`` if it is the
        first of a store that stays in memory.
        """
        if not self._fields or len(batches) == 0:
            return 0, 0
        if self._dataset.store.files.holds:
            batches = self._held.with_windows(batches)
            if batches.windows is not None:
                held = self._held.plan(batches)
                return len(held.spans), int(held.nbytes.sum())
        elif is_first_held:
            batches = WindowReader(self._dataset).with_windows(batches, is_held=True)
        if batches.windows is not None:
            return self._in_windows(batches, batches.windows)
        return self._in_chunks(batches, self._chunks.chunk_starts(batches).tolist())

    def _in_windows(self, batches: Batches, windows: Windows) -> tuple[int, int]:
        """The first batches are read sample by sample, and the windows behind them."""
        batches = replace(batches, windows=None)
        cuts = [*self._chunks.chunk_starts(batches).tolist(), len(batches)]
        alone = next((cut for cut in cuts if cut >= READ_ALONE), len(batches))
        reads, nbytes = self._in_chunks(batches.part(0, alone), cuts[: cuts.index(alone)])
        if len(batches) > READ_ALONE:
            in_windows = self._of_windows(batches, windows)
            reads, nbytes = reads + in_windows[0], nbytes + in_windows[1]
        return reads, nbytes

    def _of_windows(self, batches: Batches, windows: Windows) -> tuple[int, int]:
        mean = self._reader.mean_bytes(batches)
        _, groups = self._reader.asked_before(batches, windows, mean)
        spans, run_of = self._reader.extents(windows.part(0, int(groups[-1])), mean)
        groups = distinct(np.searchsorted(run_of, groups))  # of spans, without empty ones
        return _counted(spans, self._reader.job_cuts(spans, groups))

    def _in_chunks(self, batches: Batches, starts: Sequence[int]) -> tuple[int, int]:
        first = np.array(starts, np.int64)
        store, count = self._dataset.store, len(self._fields)
        spans = joined_spans([extents(store, name, batches.indices) for name in self._fields])
        if count > 1:
            spans = spans.at(np.arange(len(spans)).reshape(count, -1).T.reshape(-1))
        return _counted(spans, np.append(batches.cuts[first], batches.cuts[-1]) * count)


def _chunk_rule(dataset: FastDataset) -> ChunkReader | TokenProducer:
    """Return who says how many batches are read together."""
    collate = choose_collate(dataset, None, None)
    options = WorkOptions(0, PREFETCH_BATCHES, "raise", None, None).for_producer(dataset_verify=dataset.verify)
    context = ProducerContext(dataset, options, collate=collate)
    if TokenProducer.accepts(context):
        return TokenProducer(context)
    return ChunkReader(dataset.store, list(dataset.readers))


def _counted(spans: Spans, cuts: NDArray[np.int64]) -> tuple[int, int]:
    """Return the reads and bytes of groups of spans, each read alone."""
    reads, nbytes = np.empty(len(cuts) - 1, np.int64), np.empty(len(cuts) - 1, np.int64)
    _native.count_stretches(spans, cuts, reads, nbytes)
    return int(reads.sum()), int(nbytes.sum())


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
