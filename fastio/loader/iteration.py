"""Iterating over epochs: asks a producer for batches ahead of the training loop, counts, and deals with bad samples."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from fastio.errors import SampleError
from fastio.loader.device import Numbered
from fastio.loader.position import Cursor, LoaderPosition, Place
from fastio.loader.producer import FinishedBatch, PendingBatch
from fastio.loader.producer.decoding_pass import decodes_pictures
from fastio.loader.producer.held_reader import HeldReader, HeldUnits
from fastio.loader.producer.read_ahead import WindowReader
from fastio.loader.proof import EpochLedger
from fastio.loader.ranges import WAIT, named_range
from fastio.loader.thread_tuner import ThreadTuner
from fastio.loader.wiring import Wiring
from fastio.samplers.agreement import SURE_AFTER, Agreement
from fastio.samplers.batches import Batches
from fastio.samplers.uneven import say_uneven
from fastio.types.metrics import LoaderStats

__all__ = ["BatchIteration"]

log = logging.getLogger(__name__)

_FOLDED_TOGETHER = 64  # batches; the memory of their chunks' checksums is kept until then, 12 bytes a sample


class BatchIteration:
    """
    Iterates over one epoch after the other.

    The options say how many batches are made ahead. With ``is_tuned``, threads that the loop does not need are
    dropped. ``skipped`` holds the bad samples met so far, by index.
    """

    def __init__(
        self,
        wiring: Wiring,
        position: LoaderPosition,
        *,
        is_tuned: bool,
    ) -> None:
        self._selection = selection = wiring.selection
        self._producer = producer = wiring.producer
        self._options = wiring.options
        self._position = position
        self._path = selection.base.store.path
        self._agreement = Agreement(selection.plan.share, f"{self._path}: this FastLoader", position.options)
        self._fields = tuple(selection.base.readers)
        self._reader = WindowReader(selection.base, selection.indices)
        self._held = _held_reader(wiring)
        self._tuner = ThreadTuner() if is_tuned and producer.pool is not None else None
        self._may_be_unpacked = decodes_pictures(selection.base) and selection.plan.share.rank == 0
        self._stats = LoaderStats()
        self._is_closed = False
        self.skipped: dict[int, SampleError] = {}

    def run(self, cursor: Cursor, consumer: Cursor, *, is_numbered: bool) -> Iterator[Any]:
        """
        Yield the batches of one epoch, as Numbered if ``is_numbered``.

        ``cursor`` moves with each batch yielded here. Whoever hands batches on to the loop moves ``consumer``.
        """
        self.check_open()
        self._position.begin(cursor, consumer)
        left, ledger = self._left(cursor, consumer)
        parts = left.slices()
        held, stats = HeldUnits(), self._stats
        submitted = self._submitted(left, cursor.epoch, held)
        under_way = deque[PendingBatch]()
        first = True
        begin, is_compared = cursor.place, not self._agreement.is_open
        try:
            for _ in range(len(left)):
                if self._is_closed:
                    self.check_open()
                if not is_compared and consumer.batch - begin[2] >= SURE_AFTER:
                    is_compared = self._compare(begin)
                begun = perf_counter()
                with named_range(WAIT):
                    under_way.extend(islice(submitted, self._ahead(len(under_way), first=first)))
                    finished = under_way.popleft().result()
                stats.count(finished.samples, finished.nbytes, waited_s=perf_counter() - begun, first=first)
                stats.decoded_on_device += finished.on_device
                if finished.slots:
                    stats.count_tokens(finished.tokens, finished.slots)
                if self._tuner is not None:
                    self._tune(self._tuner, first=first)
                first = False
                ledger.add(finished.proof)
                if cursor.batch % _FOLDED_TOGETHER == 0:
                    ledger.fold()
                is_good = finished.samples and not finished.errors
                ready = [finished.batch] if is_good else self._checked(finished, ledger)
                if is_numbered:
                    part = next(parts)
                    if ready:
                        ready = [_numbered(finished, left, part, cursor.epoch)]
                cursor.batch += 1
                del finished
                if ready:
                    # Nothing here may keep the batch while the loop uses it, or its memory would be returned late.
                    yield ready.pop()
            if not is_compared:
                self._compare(begin)
            cursor.end_epoch()
        finally:
            for batch in under_way:
                batch.cancel()
            held.close()

    def report(self) -> LoaderStats:
        """Return the counters since the loader was made, with the producer's present threads and memory."""
        stats, producer, order = self._stats, self._producer, self._selection.plan.order
        stats.buffer_bytes = producer.buffer_bytes
        stats.threads = producer.threads
        if order is not None:
            stats.shuffle = order.report()
        stats.held = None if self._held is None else self._held.reads
        stats.estimated_bytes = producer.estimated_bytes(stats.batch_bytes, depth=self._options.depth)
        return stats

    def close(self) -> None:
        """Stop the producer's threads; iterations that continue raise ValueError. Calling it twice is harmless."""
        self._is_closed = True
        self._agreement.close()
        self._producer.close()

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    def check_open(self) -> None:
        """Raise ValueError after ``close``."""
        if self._is_closed:
            raise ValueError(f"{self._path}: this FastLoader is closed")

    def _compare(self, begin: Place) -> bool:
        """Raise ValueError if another rank goes through other samples, or began elsewhere; True otherwise."""
        self._agreement.compare(self._position.start(begin))
        return True

    def _left(self, cursor: Cursor, consumer: Cursor) -> tuple[Batches, EpochLedger]:
        """Return the batches of an epoch from the cursor on, and what sums up those that reach the consumer."""
        batches = self._selection.sampler.plan(cursor.epoch, cursor.consumed)
        say_uneven(self._path, batches, self._selection.sampler, is_rest=cursor.consumed is not None)
        self._say_unlabelled(batches)
        order = self._selection.plan.order
        left = batches.part(cursor.batch, len(batches))
        ledger = self._position.open_ledger(consumer, self._fields, len(left.indices), batches)
        if self._held is not None:
            return self._held.with_windows(left), ledger
        return self._reader.with_windows(left, is_held=order is not None and order.is_held), ledger

    def _submitted(self, left: Batches, epoch: int, held: HeldUnits) -> Iterator[PendingBatch]:
        """Begin the batches one after the other, while what they need is read ahead."""
        submitted = self._producer.submit(left, epoch=epoch)
        return self._reader.run(left, submitted) if self._held is None else self._held.run(left, submitted, held)

    def _ahead(self, under_way: int, *, first: bool) -> int:
        """
        Return how many batches to begin before the next one is waited for.

        Behind a URL two at most, and one before the first batch, which waits for nothing else then.
        """
        missing = self._options.depth + 1 - under_way
        return missing if self._held is None else min(missing, 1 if first else 2)

    def _say_unlabelled(self, batches: Batches) -> None:
        """Warn once if a batch is a single tensor that ``images, labels = batch`` would unpack without an error."""
        if self._may_be_unpacked and len(batches) and batches.cuts[1] == 2 and self._selection.base.labels is None:
            self._may_be_unpacked = False
            log.warning(
                "%s: has no labels, so a batch is a single tensor, here of two pictures; `for images, labels in "
                "loader` would take the second picture for labels: write `for images in loader`, or pack with "
                "labels",
                self._path,
            )

    def _checked(self, finished: FinishedBatch, ledger: EpochLedger) -> list[Any]:
        """Return the batch, or nothing if all its samples were skipped; record the bad samples."""
        ledger.note_errors(finished.errors)
        for error in finished.errors:
            if error.index not in self.skipped:
                self.skipped[error.index] = error
                log.warning("%s: %s", "skipped" if self._options.on_error == "skip" else "zeroed", error)
        if finished.samples:
            return [finished.batch]
        if self._selection.plan.share.world_size > 1:
            # Continuing would leave this rank a batch short, and the others would wait for it for ever.
            raise finished.errors[0]
        return []

    def _tune(self, tuner: ThreadTuner, *, first: bool) -> None:
        """Let fewer threads decode if they are enough; the first batch of an iteration is not measured."""
        if first:
            tuner.restart()
        pool, stats = self._producer.pool, self._stats
        assert pool is not None
        tuner.look(pool, now_s=perf_counter(), loading_s=stats.loading_s, batches=stats.batches)


def _held_reader(wiring: Wiring) -> HeldReader | None:
    """Return what reads the windows of files that no page cache keeps; None for others, and where none are read."""
    base = wiring.selection.base
    is_read = wiring.reads_store and base.store.files.holds and bool(base.readers) and not base.makes_samples
    return HeldReader(base, depth=wiring.options.depth) if is_read else None


def _numbered(finished: FinishedBatch, batches: Batches, part: slice, epoch: int) -> Numbered:
    """Return a batch with the ids of its samples for random numbers, without those skipped."""
    ids = batches.ids[part]
    if finished.samples < len(ids):
        ids = ids[~np.isin(batches.indices[part], [error.index for error in finished.errors])]
    return Numbered(finished.batch, epoch, ids)
