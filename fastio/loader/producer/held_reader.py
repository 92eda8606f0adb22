"""Reads the windows of an order into memory and holds them there, for files that no page cache keeps."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.producer.producer import Submitted
from fastio.samplers.batches import Batches
from fastio.samplers.held_memory import WHOLE_BYTES
from fastio.samplers.windows import Windows
from fastio.store.files import Nearing
from fastio.store.files.together import joined_spans
from fastio.types.metrics import HeldReads
from fastio.types.spans import Spans

__all__ = ["HeldPlan", "HeldReader", "HeldUnits"]

log = logging.getLogger(__name__)

_UNIT_BYTES = 4 << 20  # of neighbouring samples that are asked for together, where no order says how many
_LEAST_BYTES = 64 << 10  # of such a run, on average: with less, a request would mostly wait for its first byte
_GAP_BYTES = 64 << 10  # between values that are asked for together
_LOOKED_AT = 1024  # samples whose sizes stand for all
_MOST_SINGLE = 512  # requests for the samples of the first batch alone
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

    def __len__(self) -> int:
        return len(self.nbytes)

    def reads(self) -> HeldReads:
        """Return what these units cost: by arithmetic, not measured."""
        if len(self) == 0:
            return HeldReads(0, 0, 0)
        held = np.zeros(int(self.dropped.max()) + 1, np.int64)
        np.add.at(held, self.asked, self.nbytes)
        np.subtract.at(held, self.dropped, self.nbytes)
        return HeldReads(len(self.spans), int(self.nbytes.sum()), int(np.cumsum(held).max()))


@dataclass(slots=True)
class HeldUnits:
    """What one iteration holds, each until the batch before whose beginning it may go."""

    _handles: list[tuple[int, int, Nearing]] = field(default_factory=list)
    _count: int = 0

    def keep(self, until: int, handle: Nearing) -> None:
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
        Return the batches with windows that are each one request: the blocks of an order in lanes, runs of neighbours,
        or a small store as a whole.

        Orders that take single samples from all over a store get none, and one line is logged.
        """
        if len(batches.indices) == 0:
            return batches
        if batches.windows is not None:
            return replace(batches, windows=_blocks(batches.windows, slack=2 * int(np.diff(batches.cuts).max())))
        windows = self._whole(batches) or self._runs(batches)
        if windows is None and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: the samples of this order lie all over the store, so each of them is a request of its own: "
                "shuffle=True reads whole blocks, and stage=FOLDER with stage_wait=True copies the set first",
                self._dataset.store.path,
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
        return self._with_singles(batches, HeldPlan(spans, cuts, nbytes, first, done))

    def _with_singles(self, batches: Batches, plan: HeldPlan) -> HeldPlan:
        """
        Return the plan with the samples of the first batch before all else, if these are far fewer bytes than the
        units that have them.

        A batch of an order in lanes has samples of each lane, so its units are hundreds of MiB.
        """
        count = max(1, int(np.searchsorted(batches.cuts[1:], self._chunk_samples(batches), side="right")))
        samples = np.unique(batches.indices[: batches.cuts[count]])
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
            np.append(count + self._depth, plan.dropped),
            has_singles=True,
        )

    def _run(self, plan: HeldPlan, submitted: Iterator[Submitted], held: HeldUnits) -> Iterator[Submitted]:
        read_ahead = self._dataset.store.files.read_ahead
        asked, dropped, cuts = plan.asked.tolist(), plan.dropped.tolist(), plan.cuts.tolist()
        unit = number = 0
        while True:
            held.drop(number)
            while unit < len(asked) and asked[unit] <= number:
                spans = plan.spans.part(cuts[unit], cuts[unit + 1])
                held.keep(dropped[unit], read_ahead(spans, comes_again=plan.has_singles and unit == 0))
                unit += 1
            batch = next(submitted, None)
            if batch is None:
                return
            yield batch
            number += 1

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
        """Return one window of everything, for samples of a store that are few bytes."""
        members = np.unique(batches.indices)
        nbytes = int(self._spans(members).sizes.sum())
        if nbytes > WHOLE_BYTES or len(batches.indices) < len(self._dataset.store) // 2:
            return None
        firsts = np.arange(0, len(members), max(1, _UNIT_BYTES * len(members) // max(1, nbytes)), dtype=np.int64)
        stops = np.append(firsts[1:], len(members))
        return Windows(firsts, stops, np.zeros_like(firsts), np.full_like(firsts, len(batches.indices) - 1), members)

    def _runs(self, batches: Batches) -> Windows | None:
        """Return a window for every run of neighbours; None if these are short."""
        indices = batches.indices
        mean = self._mean_bytes(batches)
        firsts = np.flatnonzero(np.diff(indices, prepend=indices[0] - 2) != 1)
        if mean * len(indices) < _LEAST_BYTES * len(firsts):
            return None
        lengths = np.diff(firsts, append=len(indices))
        pieces = -(-lengths * mean // _UNIT_BYTES)
        piece = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
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
        return joined_spans([store.spans(name, samples, checksums=False) for name in self._dataset.readers])


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
    Join the values of each unit that lie near each other, of one field or several; return the ranges in the order of
    the units, and the unit of each.

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
    firsts = np.flatnonzero(is_first)
    ends = reached[np.append(firsts[1:], len(order)) - 1] - offset[firsts]
    return Spans(spans.buffers, shard[firsts], starts[firsts], ends - starts[firsts]), unit[firsts]
