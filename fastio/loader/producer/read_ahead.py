"""Reads the windows of an order before their samples are needed: into the page cache, or into memory of ours."""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.producer.chunks import READ_ALONE
from fastio.loader.producer.producer import Submitted
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.samplers.lanes import Windows, ranges
from fastio.samplers.memory import held_bytes
from fastio.store.files import Prefetch
from fastio.store.files.fetch import joined_spans
from fastio.store.protocol import extents
from fastio.types.metrics import HeldReads
from fastio.types.spans import Spans, distinct, numbers_within

if TYPE_CHECKING:
    from fastio.store.index.far_points import FarPoints

__all__ = [
    "HeldReader",
    "HeldUnits",
    "WindowReader",
]


_JOB_BYTES = 64 << 20  # bytes per call to the kernel, and what can be dropped with the iteration
_MOST_JOBS = 256
_MOST_SPREAD = 8  # times the samples' own bytes
_HALVED_DOWN_TO = 64  # samples
_LOOKED_AT = 1024  # samples whose sizes stand for all


class WindowReader:
    """
    Reads ahead for one loader, in a thread of its own, through the page cache.

    Batches with ``windows`` need a few samples each from many places: read one by one, these would be random reads. A
    window is read whole when its first sample comes near, but for the first batches, which are read sample by sample:
    otherwise the first one would wait for all windows that an order begins with.
    """

    def __init__(self, dataset: FastDataset, indices: NDArray[np.int64] | None = None) -> None:
        self._dataset = dataset
        self._fields = list(dataset.readers)
        # The samples of a subset, in stored order; None: all.
        self._members = None if indices is None else distinct(indices)
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
        store = self._dataset.store
        if self._members is None:
            nbytes = sum(store.total_bytes(name) for name in self._fields)
        else:
            nbytes = sum(int(store.value_bytes(name)[self._members].sum()) for name in self._fields)
        if nbytes > available_memory():
            return batches
        count = len(store) if self._members is None else len(self._members)
        firsts = np.arange(0, count, max(1, _JOB_BYTES * count // max(1, nbytes)), dtype=np.int64)
        stops = np.append(firsts[1:], count)
        at_once, last = np.zeros_like(firsts), np.full_like(firsts, batches.count)
        return replace(batches, windows=Windows(firsts, stops, at_once, last, self._members))

    def run(self, batches: Batches, submitted: Iterator[Submitted]) -> Iterator[Submitted]:
        """
        Yield from ``submitted``, the producer of these batches; before each one, what comes after it is read. The first
        ones, which it has read itself, come before all of that.
        """
        if batches.windows is None or len(batches) == 0 or not self._fields:
            return submitted
        return self._run(batches, batches.windows, submitted)

    def _run(self, batches: Batches, windows: Windows, submitted: Iterator[Submitted]) -> Iterator[Submitted]:
        pool = _native.ThreadPool(1)
        jobs: deque[Prefetch] = deque()
        mean = self.mean_bytes(batches)
        asked, cuts = self.asked_before(batches, windows, mean)
        coming: dict[int, list[tuple[int, int]]] = {}
        for number, part in zip(np.maximum(asked, READ_ALONE).tolist(), pairwise(cuts.tolist()), strict=True):
            coming.setdefault(number, []).append(part)
        try:
            for number in range(len(batches)):
                for part in coming.get(number, ()):
                    jobs.extend(self._ask(windows.part(*part), mean, pool))
                    while jobs and (jobs[0].done or len(jobs) > _MOST_JOBS):
                        jobs.popleft()  # if too many wait, the samples of the first ones have come by now
                yield next(submitted)
        finally:
            for job in jobs:
                job.cancel()
            pool.close()

    def mean_bytes(self, batches: Batches) -> int:
        """Return the size of a sample: that of the first ones stands for all."""
        return int(self.sizes(batches.part(0, 1).indices[:_LOOKED_AT]).mean()) + 1

    def asked_before(
        self, batches: Batches, windows: Windows, mean: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return when which windows are asked for: those from ``cuts[k]`` up to ``cuts[k + 1]`` before batch
        ``asked[k]`` is begun.
        """
        ahead = max(1, self._dataset.store.files.ahead_bytes // mean)
        asked, bounds, stops = [], [0], batches.cuts[1:]
        number = 0
        while number < len(stops):
            asked.append(number)
            bounds.append(int(stops[number]) + ahead)
            number = max(number + 1, int(np.searchsorted(stops, bounds[-1] - ahead // 2, side="right")))
        return np.array(asked, np.int64), np.searchsorted(windows.needed, bounds)

    def _ask(self, windows: Windows, mean: int, pool: _native.ThreadPool) -> Iterator[Prefetch]:
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

        A run that is not a stretch of one file, or mostly other samples' bytes, is halved, and what stays so down to a
        few samples is the bytes of each; so are all runs if some fields are not asked for, because their bytes may lie
        between.
        """
        runs, starts, stops = np.arange(len(windows.starts)), windows.starts, windows.stops
        if len(self._fields) < len(self._dataset.store.schema.payload):
            return self._samples_of(windows, runs, starts, stops)
        fields = len(self._fields)
        found: list[tuple[Spans, NDArray[np.int64]]] = []
        while True:
            first, last = self._spans(windows.at(starts)), self._spans(windows.at(stops - 1))
            sizes = last.starts + last.sizes - first.starts
            most = np.repeat(_MOST_SPREAD * mean * (stops - starts), fields)
            is_whole = ((first.shard == last.shard) & (sizes >= 0) & (sizes <= most)).reshape(-1, fields).all(axis=1)
            whole = Spans(first.buffers, first.shard, first.starts, sizes)
            if is_whole.all() and not found:
                return whole, np.repeat(runs, fields)
            is_small = ~is_whole & (stops - starts <= _HALVED_DOWN_TO)
            found.append((whole.at(np.flatnonzero(np.repeat(is_whole, fields))), np.repeat(runs[is_whole], fields)))
            found.append(self._samples_of(windows, runs[is_small], starts[is_small], stops[is_small]))
            left = ~is_whole & ~is_small
            if not left.any():
                break
            middles = (starts[left] + stops[left]) // 2
            starts, stops = np.concatenate((starts[left], middles)), np.concatenate((middles, stops[left]))
            runs = np.tile(runs[left], 2)
        spans, numbers = joined_spans([each for each, _ in found]), np.concatenate([number for _, number in found])
        order = np.lexsort((spans.starts, spans.shard, numbers))
        return spans.at(order), numbers[order]

    def _samples_of(
        self,
        windows: Windows,
        runs: NDArray[np.int64],
        starts: NDArray[np.int64],
        stops: NDArray[np.int64],
    ) -> tuple[Spans, NDArray[np.int64]]:
        """Return the bytes of every sample of these parts of runs, and the run of each span."""
        return self._spans(windows.at(ranges(starts, stops))), np.repeat(runs, (stops - starts) * len(self._fields))

    def _spans(self, samples: NDArray[np.int64]) -> Spans:
        """Return the spans of these samples: of the first sample all fields, then of the second, ..."""
        store, fields = self._dataset.store, len(self._fields)
        spans = joined_spans([extents(store, name, samples) for name in self._fields])
        return spans if fields == 1 else spans.at(np.arange(len(spans)).reshape(fields, -1).T.reshape(-1))

    def sizes(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes of each of these samples."""
        sizes: NDArray[np.int64] = self._spans(samples).sizes.reshape(-1, len(self._fields)).sum(axis=1)
        return sizes


# Reads the windows of an order into memory and holds them there, for files that no page cache keeps.

log = logging.getLogger(__name__)

_UNIT_BYTES = 4 << 20  # of neighbouring samples that are asked for together, where no order says how many
_LEAST_BYTES = 64 << 10  # of such a run, on average: with less, a request would mostly wait for its first byte
_GAP_BYTES = 64 << 10  # between values that are asked for together
_MOST_SINGLE = 512  # requests for the samples of the first batch alone
_WHOLE_POINTS_BYTES = 64 << 20  # of start points that are read once for an epoch: those of some 5 GB of photos
_FEWEST_FOR_POINTS = 8  # batches of an epoch: fewer end before start points are there
_SINGLE_SHARE = 0.02  # of an epoch's bytes that may come twice for it
_LEAST_WAITED_BYTES = 32 << 20  # that the first batch would otherwise wait for,
_LEAST_GAIN = 4  # and how many times the bytes of its samples


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """
    The units of reading of some batches, each a few neighbouring samples, in the order in which they are needed.

    Unit k is ``spans[cuts[k]:cuts[k + 1]]``, ``nbytes[k]`` bytes in all. It is asked for before batch ``asked[k]`` is
    begun, and let go before batch ``dropped[k]`` is. Arrays are int64. With ``has_singles``, the first unit holds the
    samples of the first batch alone, which later units bring again with their neighbours.
    """

    spans: Spans
    cuts: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    asked: NDArray[np.int64]
    dropped: NDArray[np.int64]
    has_singles: bool = False
    points: Sequence[PointsPlan] = ()

    def __len__(self) -> int:
        return len(self.nbytes)

    def reads(self) -> HeldReads:
        """Return what these units cost: by arithmetic, not measured."""
        if len(self) == 0:
            return HeldReads(0, 0, 0)
        plans = [self, *(each.units for each in self.points)]
        held = np.zeros(max(int(plan.dropped.max()) for plan in plans) + 1, np.int64)
        for plan in plans:
            np.add.at(held, plan.asked, plan.nbytes)
            np.subtract.at(held, plan.dropped, plan.nbytes)
        requests, size = (sum(each) for each in zip(*((len(p.spans), int(p.nbytes.sum())) for p in plans), strict=True))
        return HeldReads(requests, size, int(np.cumsum(held).max()))


@dataclass(frozen=True, slots=True)
class PointsPlan:
    """The start points of one field behind a URL, which are read ahead as samples are: in these units."""

    points: FarPoints
    units: HeldPlan


@dataclass(slots=True)
class HeldUnits:
    """What one iteration holds, each until the batch before whose beginning it may go."""

    _handles: list[tuple[int, int, Prefetch]] = field(default_factory=list)
    _count: int = 0

    def keep(self, until: int, handle: Prefetch) -> None:
        """Hold it until batch ``until`` is begun."""
        self._count += 1
        heapq.heappush(self._handles, (until, self._count, handle))

    def drop(self, number: int) -> None:
        """Let go of what is not needed once batch ``number`` is begun."""
        while self._handles and self._handles[0][0] <= number:
            heapq.heappop(self._handles)

    def close(self) -> None:
        """Let go of everything."""
        for _, _, handle in self._handles:
            handle.cancel()
        self._handles.clear()


class HeldReader:
    """
    Reads ahead for one loader, from files that hold bytes only while somebody keeps what ``read_ahead`` returned.

    One unit is asked for per block of an order in lanes, or per few MiB of samples that come in stored order. It is
    kept until the last of its samples is in a batch that is done: ``depth`` batches may be under way.
    """

    def __init__(self, dataset: FastDataset, *, depth: int) -> None:
        self._dataset = dataset
        self._depth = depth
        self._has_warned = False
        self.reads: HeldReads | None = None  # of the latest epoch

    def with_windows(self, batches: Batches) -> Batches:
        """
        Return the batches with windows that are each a request, or a few: the blocks of an order in lanes, runs of
        neighbours, or everything at once where memory may hold that.

        Orders that take single samples from all over a larger store get none, and one line is logged.
        """
        if batches.count == 0:
            return batches
        if batches.windows is not None:
            return replace(batches, windows=_blocks(batches.windows, slack=2 * int(np.diff(batches.cuts).max())))
        windows = self._whole(batches) or self._runs(batches)
        if windows is None and not self._has_warned:
            self._has_warned = True
            store = self._dataset.store
            log.warning(
                "%s: the samples of this order lie all over the store, so each of them is a request of its own: "
                "shuffle=True reads whole blocks, Remote(stage=FOLDER, stage_wait=True) copies the set first, and "
                "FASTIO_SHUFFLE_MEMORY=%dMB lets each rank hold all of it",
                store.path,
                -(-store.size_bytes // 1_000_000),
            )
        return replace(batches, windows=windows)

    def run(self, batches: Batches, submitted: Iterator[Submitted], held: HeldUnits) -> Iterator[Submitted]:
        """
        Yield from ``submitted``, the producer of these batches; before each one, what comes after it is asked for and
        put into ``held``, which whoever calls closes when the last batch is done.
        """
        self.reads = None
        if batches.windows is None or len(batches) == 0:
            return submitted
        plan = self.plan(batches)
        self.reads = plan.reads()
        return self._run(plan, submitted, held)

    def plan(self, batches: Batches) -> HeldPlan:
        """Return the units of batches that have windows."""
        assert batches.windows is not None
        windows, samples = batches.windows, batches.windows.samples()
        units = np.repeat(np.arange(len(windows.starts)), windows.stops - windows.starts)
        values, count = self._spans(samples), len(self._dataset.readers)
        spans, unit = _ranges(values, np.tile(units, count))
        cuts = np.searchsorted(unit, np.arange(len(windows.starts) + 1))
        nbytes = np.add.reduceat(spans.sizes, cuts[:-1])
        first = np.searchsorted(batches.cuts[1:], windows.needed - self._ahead(batches), side="right")
        # The first batch waits for nothing else: the rest is asked for once its samples have come.
        first = np.maximum(first, windows.needed >= self._looked_up(batches))
        done = np.searchsorted(batches.cuts, windows.last, side="right") + self._depth
        plan = HeldPlan(spans, cuts, nbytes, first, done)
        points = self._points(samples, units, plan, batches)
        return replace(self._with_singles(batches, plan), points=points)

    def _points(
        self, samples: NDArray[np.int64], units: NDArray[np.int64], plan: HeldPlan, batches: Batches
    ) -> list[PointsPlan]:
        """
        Return the start points of these samples, which are in these units of a plan: all of them once for the epoch if
        they are few, else those of each unit with it; never before the first batch, which would wait for them.
        """
        found = []
        for name in self._dataset.readers:
            far = self._dataset.store.far_points(name, samples)
            if far is None or not far.spans.sizes.any() or len(batches) < _FEWEST_FOR_POINTS:
                continue
            is_whole = int(far.spans.sizes.sum()) <= _WHOLE_POINTS_BYTES
            unit = np.zeros_like(units) if is_whole else units
            has_any = np.flatnonzero(far.spans.sizes)
            spans, unit = _ranges(far.spans.at(has_any), unit[has_any])
            numbers, cuts = np.unique(unit, return_index=True)
            asked = np.ones(1, np.int64) if is_whole else np.maximum(plan.asked[numbers], 1)
            dropped = np.array([len(batches) + self._depth]) if is_whole else np.maximum(plan.dropped[numbers], 2)
            nbytes = np.add.reduceat(spans.sizes, cuts)
            own = HeldPlan(spans, np.append(cuts, len(spans)), nbytes, asked, dropped)
            found.append(PointsPlan(far.points, own))
        return found

    def _with_singles(self, batches: Batches, plan: HeldPlan) -> HeldPlan:
        """
        Return the plan with the samples of the first batch before all else, if these are far fewer bytes than the
        units that have them.

        A batch of an order in lanes has samples of each lane, so its units are hundreds of MiB.
        """
        samples = distinct(batches.indices[: batches.cuts[1]])
        values = self._spans(samples)
        spans, _ = _ranges(values, np.zeros(len(values), np.int64))
        nbytes = int(spans.sizes.sum())
        total, waited = int(plan.nbytes.sum()), int(plan.nbytes[plan.asked == 0].sum())
        is_worth_it = waited >= max(_LEAST_WAITED_BYTES, _LEAST_GAIN * nbytes)
        if not is_worth_it or len(spans) > _MOST_SINGLE or nbytes > _SINGLE_SHARE * total:
            return plan
        return HeldPlan(
            joined_spans([spans, plan.spans]),
            np.concatenate(([0], plan.cuts + len(spans))),
            np.append(nbytes, plan.nbytes),
            np.append(0, plan.asked),
            np.append(1 + self._depth, plan.dropped),
            has_singles=True,
        )

    def _run(self, plan: HeldPlan, submitted: Iterator[Submitted], held: HeldUnits) -> Iterator[Submitted]:
        files = self._dataset.store.files
        samples = _Asked(plan, files.read_ahead)
        asked = [samples, *(_Asked(each.units, each.points.files.hold) for each in plan.points)]
        wanted = files.bring_first(plan.spans) if hasattr(files, "bring_first") else None  # of RemoteFiles
        number = 0
        try:
            while True:
                held.drop(number)
                for each in asked:
                    each.ask(number, held)
                if wanted is not None:
                    wanted.asked = samples.spans
                batch = next(submitted, None)
                if batch is None:
                    return
                if wanted is not None:
                    wanted.is_waiting = False  # for the samples of the first batch
                yield batch
                number += 1
        finally:
            if wanted is not None:
                wanted.close()

    def _ahead(self, batches: Batches) -> int:
        """Return how many samples are asked for ahead: at least those that producers look up ahead of a batch."""
        return max(self._dataset.store.files.ahead_bytes // self._mean_bytes(batches), self._looked_up(batches))

    def _looked_up(self, batches: Batches) -> int:
        """Return how many samples producers look up ahead of a batch, at most."""
        return 3 * max(self._chunk_samples(batches), int(np.diff(batches.cuts).max()))

    def _chunk_samples(self, batches: Batches) -> int:
        """Return how many samples producers look up at once, if batches are smaller."""
        return self._dataset.store.files.chunk_bytes // self._mean_bytes(batches)

    def _whole(self, batches: Batches) -> Windows | None:
        """Return windows of everything that are asked for at once, if memory may hold what has to be read for that."""
        most = held_bytes()
        if self._mean_bytes(batches) * min(batches.count, len(self._dataset)) > most:
            return None
        members = distinct(batches.indices)
        values = self._spans(members)
        ranges, _ = _ranges(values, np.zeros(len(values), np.int64))
        nbytes = int(ranges.sizes.sum())
        is_scattered = nbytes < _LEAST_BYTES * (len(ranges) - 1)  # but for a whole store, whose files are small
        if nbytes > most or (is_scattered and len(members) < len(self._dataset.store)):
            return None
        firsts = np.arange(0, len(members), max(1, _UNIT_BYTES * len(members) // max(1, nbytes)), dtype=np.int64)
        stops = np.append(firsts[1:], len(members))
        return Windows(firsts, stops, np.zeros_like(firsts), np.full_like(firsts, batches.count - 1), members)

    def _runs(self, batches: Batches) -> Windows | None:
        """Return a window for every run of neighbours; None if these are short."""
        indices = batches.indices
        mean = self._mean_bytes(batches)
        firsts = np.flatnonzero(np.diff(indices, prepend=indices[0] - 2) != 1)
        if mean * len(indices) < _LEAST_BYTES * len(firsts):
            return None
        lengths = np.diff(firsts, append=len(indices))
        pieces = -(-lengths * mean // _UNIT_BYTES)
        piece = numbers_within(pieces)
        length, count = np.repeat(lengths, pieces), np.repeat(pieces, pieces)
        begins = np.repeat(firsts, pieces) + piece * length // count
        ends = np.repeat(firsts, pieces) + (piece + 1) * length // count
        return Windows(indices[begins], indices[ends - 1] + 1, begins, ends - 1)

    def _mean_bytes(self, batches: Batches) -> int:
        """Return the size of a sample: that of some, spread over the epoch, stands for all."""
        step = -(-len(batches.indices) // _LOOKED_AT)
        some = batches.indices[::step]
        return int(self._spans(some).sizes.sum()) // len(some) + 1

    def _spans(self, samples: NDArray[np.int64]) -> Spans:
        """Return the spans of these samples, field after field."""
        store = self._dataset.store
        return joined_spans([extents(store, name, samples) for name in self._dataset.readers])


class _Asked:
    """How far the units of a plan have been asked for, by ``read_ahead``."""

    def __init__(self, plan: HeldPlan, read_ahead: Callable[..., Prefetch]) -> None:
        self._plan, self._read_ahead = plan, read_ahead
        self._asked, self._dropped, self._cuts = plan.asked.tolist(), plan.dropped.tolist(), plan.cuts.tolist()
        self._unit = 0

    @property
    def spans(self) -> int:
        """How many spans of the plan were asked for."""
        return int(self._cuts[self._unit])

    def ask(self, number: int, held: HeldUnits) -> None:
        """Ask for what comes before batch ``number``, and keep it in ``held``."""
        while self._unit < len(self._asked) and self._asked[self._unit] <= number:
            spans = self._plan.spans.part(self._cuts[self._unit], self._cuts[self._unit + 1])
            handle = self._read_ahead(spans, comes_again=self._plan.has_singles and self._unit == 0)
            held.keep(self._dropped[self._unit], handle)
            self._unit += 1


def _blocks(windows: Windows, *, slack: int) -> Windows:
    """
    Join runs that lie side by side and are needed one after the other, at most ``slack`` samples apart: the two parts
    of a block of an order in lanes, whose windows begin within blocks.
    """
    order = np.argsort(windows.starts, kind="stable")
    starts, stops = windows.starts[order], windows.stops[order]
    needed, last = windows.needed[order], windows.last[order]
    is_near = np.maximum(needed[1:], needed[:-1]) - np.minimum(last[1:], last[:-1]) <= slack
    firsts = np.flatnonzero(np.append(True, ~(is_near & (starts[1:] == stops[:-1]))))
    stops = stops[np.append(firsts[1:], len(stops)) - 1]
    needed, last = np.minimum.reduceat(needed, firsts), np.maximum.reduceat(last, firsts)
    by_need = np.argsort(needed, kind="stable")
    return Windows(starts[firsts][by_need], stops[by_need], needed[by_need], last[by_need], windows.members)


def _ranges(spans: Spans, unit: NDArray[np.int64]) -> tuple[Spans, NDArray[np.int64]]:
    """
    Join the values of each unit that lie near each other, of one field or several, up to some MiB; return the ranges in
    the order of the units, and the unit of each.

    Values of a unit come in no order: those in a page of LMDB lie there from last to first.
    """
    order = np.lexsort((spans.starts, spans.shard, unit))
    unit, shard, starts = unit[order], spans.shard[order], spans.starts[order]
    stops = starts + spans.sizes[order]
    is_first = (np.diff(unit, prepend=-1) != 0) | (np.diff(shard, prepend=-1) != 0)
    # Each file of a unit far from all others, so that one running maximum serves all.
    offset = np.cumsum(is_first) * (int(stops.max(initial=0)) + _GAP_BYTES + 1)
    reached = np.maximum.accumulate(stops + offset)
    is_first[1:] |= (starts + offset)[1:] > reached[:-1] + _GAP_BYTES
    firsts, lengths = _lengths(is_first, starts + offset, reached)
    pieces = (lengths + _UNIT_BYTES // 2) // _UNIT_BYTES
    if (pieces > 1).any():  # one connection would take longer for it than several
        counts = np.diff(firsts, append=len(order))
        within = (starts - np.repeat(starts[firsts], counts)) // np.repeat(lengths // np.maximum(1, pieces) + 1, counts)
        is_first[1:] |= within[1:] != within[:-1]
        firsts, lengths = _lengths(is_first, starts + offset, reached)
    return Spans(spans.buffers, shard[firsts], starts[firsts], lengths), unit[firsts]


def _lengths(
    is_first: NDArray[np.bool_], starts: NDArray[np.int64], reached: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where ranges begin in these values, and how many bytes each has up to what its last value has reached."""
    firsts = np.flatnonzero(is_first)
    return firsts, reached[np.append(firsts[1:], len(starts)) - 1] - starts[firsts]
