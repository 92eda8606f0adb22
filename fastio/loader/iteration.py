"""Iterating over epochs: a native loop hands out a producer's batches; what is not done for each is done here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from fastio import _native
from fastio.errors import SampleError, SchemaError, UnequalSizesError
from fastio.loader.batch_steps import Numbered
from fastio.loader.position import Cursor, LoaderPosition, Place
from fastio.loader.producer import FinishedBatch
from fastio.loader.producer.field_options import decodes_pictures
from fastio.loader.producer.producer import Submitted, add_advice
from fastio.loader.producer.read_ahead import HeldReader, HeldUnits, WindowReader
from fastio.loader.proof.ledger import EpochLedger
from fastio.loader.ranges import WAIT, named_range, watcher
from fastio.loader.thread_tuner import ThreadTuner
from fastio.loader.wiring import Wiring
from fastio.samplers.agreement import SURE_AFTER, Agreement
from fastio.samplers.batches import Batches
from fastio.samplers.share import say_uneven
from fastio.store.files.listed import ListedFiles
from fastio.store.index.store import unpacked_of
from fastio.types.metrics import LoaderStats, Opens

__all__ = [
    "BatchIteration",
    "EpochIterator",
]


log = logging.getLogger(__name__)

# Batches without a look at anything else; the checksums of their chunks are kept until then, 12 bytes a sample.
_RUN = 64
_MANY_FILES = 1000  # read in an epoch, from which on it says what packing would save


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
        self._late_crop = wiring.late_crop
        self._placement = wiring.placement
        self._is_placement_told = self._is_gain_told = False
        self._views = wiring.views
        self._frames = wiring.frames
        self._agreement = self._agree()
        self._fields = wiring.whole
        self._reader = WindowReader(selection.base, selection.indices)
        self._held = _held_reader(wiring)
        self._tuner = ThreadTuner() if is_tuned and producer.pool is not None else None
        self._may_be_unpacked = decodes_pictures(selection.base) and selection.plan.share.rank == 0
        files = selection.base.store.files
        self._stats = LoaderStats(
            opens=files.opens if isinstance(files, ListedFiles) else None,
            requests=getattr(files, "requests", None),  # of RemoteFiles, whose client is imported for URLs alone
            staged_of=getattr(files, "staged", None),
        )
        self._is_closed = False
        self._loops: set[_native.BatchLoop] = set()  # of the iterations under way
        self.skipped: dict[int, SampleError] = {}

    def _agree(self) -> Agreement:
        return Agreement(self._selection.plan.share, f"{self._path}: this FastLoader", self._position.options)

    def begin_anew(self) -> None:
        """Stop the iterations under way, which raise ValueError where they are continued: the ranks are others now."""
        for loop in self._loops.copy():
            loop.stop()
        self._agreement.close()
        self._agreement = self._agree()

    def run(self, cursor: Cursor, consumer: Cursor, *, is_numbered: bool) -> Iterator[Any]:
        """
        Yield the batches of one epoch, as Numbered if ``is_numbered``.

        ``cursor`` moves with each batch yielded here. Whoever hands batches on to the loop moves ``consumer``.
        """
        self.check_open()
        self._tell_placement()
        self._position.begin(cursor, consumer)
        left, ledger = self._left(cursor, consumer)
        held, skipped = HeldUnits(), list[FinishedBatch]()
        loop = _native.BatchLoop(
            self._submitted(left, cursor.epoch, held),
            self._options.depth,
            counts=self._stats.counts,
            cursor=cursor,
            note=ledger.note,
            settle=partial(self._settle, ledger, skipped),
            is_gradual=self._held is not None,  # the first batch waits for no other samples then
        )
        self._loops.add(loop)
        agreement, begin, is_compared = self._agreement, cursor.place, not self._agreement.is_open
        opens, begun_s = None if self._stats.opens is None else replace(self._stats.opens), perf_counter()
        folded = 0
        advised = SampleError, UnequalSizesError  # the module's names are gone when an interpreter ends within an epoch
        try:
            while not loop.is_done:
                self._check_current(agreement)
                if not is_compared and consumer.batch - begin[2] >= SURE_AFTER:
                    is_compared = self._compare(begin)
                reads_ranges = watcher()
                is_read = reads_ranges is not None and reads_ranges()
                if is_numbered or not is_compared or loop.number == 0 or is_read:
                    with named_range(WAIT):
                        ready = list(loop.run(1))
                    if is_numbered and ready:
                        ready = [_numbered(ready.pop(), left, loop.number - 1, cursor.epoch, skipped)]
                    skipped.clear()
                    # Nothing here may keep the batch while the loop uses it, or its memory would be returned late.
                    if ready:
                        yield ready.pop()
                else:
                    yield from loop.run(_RUN, reads_ranges)
                if self._tuner is not None:
                    self._tune(self._tuner, first=loop.number == 1)
                if loop.number - folded >= _RUN:
                    ledger.fold()
                    folded = loop.number
            if not is_compared:
                self._compare(begin)
            cursor.end_epoch()
            self._tell_files(opens, perf_counter() - begun_s)
        except advised as exc:
            self._advise(exc)
            raise
        except RuntimeError:  # the pool's, if another thread closed the loader meanwhile
            self._check_current(agreement)
            raise
        finally:
            self._loops.discard(loop)
            loop.cancel()
            held.close()

    def _tell_placement(self) -> None:
        """Log where batches are made, once for each loader."""
        if not self._is_placement_told:
            self._is_placement_told = True
            log.debug("%s: %s", self._path, "; ".join(self._placement.lines))

    def _tell_files(self, before: Opens | None, elapsed_s: float) -> None:
        """Say once, after an epoch over files in place, what packing them would save."""
        opens = self._stats.opens
        if before is None or opens is None or self._is_gain_told or opens.files - before.files < _MANY_FILES:
            return
        from fastio.store.kinds.recognise import pack_command

        self._is_gain_told = True
        gain = opens.since(before).gain(elapsed_s)
        if gain.is_much:
            command = pack_command(self._path, *unpacked_of(self._selection.base.store).words())
            log.warning("%s: %s: packed, it would not: %s", self._path, gain.words(), command)
        else:
            log.info("%s: %s: packing would hardly load faster", self._path, gain.words())

    def _advise(self, error: SampleError | UnequalSizesError) -> None:
        """Add to an error that ends the loop what the user can do about it."""
        if isinstance(error, SampleError):
            add_advice(error, on_error=self._options.on_error)
        elif self._late_crop:
            raise SchemaError(f"{error.args[0]}; {self._late_crop}") from error

    def report(self) -> LoaderStats:
        """Return the counters since the loader was made, with the producer's present threads and memory."""
        stats, producer, order = self._stats, self._producer, self._selection.plan.order
        stats.buffer_bytes = producer.buffer_bytes
        stats.threads = producer.threads
        stats.placement, stats.pictures = self._placement, producer.pictures
        if order is not None:
            stats.shuffle = order.report()
        stats.held = None if self._held is None else self._held.reads
        stats.estimated_bytes = producer.estimated_bytes(stats.batch_bytes, depth=self._options.depth)
        return stats

    def close(self) -> None:
        """Stop the producer's threads; iterations that continue raise ValueError. Calling it twice is harmless."""
        self._is_closed = True
        for loop in self._loops.copy():
            loop.stop()
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

    def _check_current(self, agreement: Agreement) -> None:
        """Raise ValueError in an iteration that began before the loader was closed, or went on as another rank."""
        self.check_open()
        if agreement is not self._agreement:
            raise ValueError(f"{self._path}: set_ranks() was called: leave the loop, and begin another over the loader")

    def _compare(self, begin: Place) -> bool:
        """Raise ValueError if another rank goes through other samples, or began elsewhere; True otherwise."""
        self._agreement.compare(self._position.start(begin))
        return True

    def _left(self, cursor: Cursor, consumer: Cursor) -> tuple[Batches, EpochLedger]:
        """Return the batches of an epoch from the cursor on, and what sums up those that reach the consumer."""
        if self._stats.requests is not None:
            self._stats.requests.begin_epoch()
        try:
            batches = self._selection.sampler.plan(cursor.epoch, cursor.consumed)
        except BaseException:  # weights or a sampler of the user's may raise anything
            self._position.withdraw(consumer)
            raise
        say_uneven(self._path, batches, self._selection.sampler, is_rest=cursor.consumed is not None)
        self._say_unlabelled(batches)
        order = self._selection.plan.order
        left = batches.rest(cursor.batch)
        ledger = self._position.open_ledger(consumer, self._fields, left.count, batches)
        if self._held is not None:
            return self._held.with_windows(left), ledger
        is_held = order is not None and order.is_held and not self._producer.reads_whole
        return self._reader.with_windows(left, is_held=is_held), ledger

    def _submitted(self, left: Batches, epoch: int, held: HeldUnits) -> Iterator[Submitted]:
        """Begin the batches one after the other, while what they need is read ahead."""
        submitted = self._producer.submit(left, epoch=epoch)
        return self._reader.run(left, submitted) if self._held is None else self._held.run(left, submitted, held)

    def _say_unlabelled(self, batches: Batches) -> None:
        """Warn once if a batch is a single value that ``images, labels = batch`` would unpack without an error."""
        if not (self._may_be_unpacked and len(batches)) or self._selection.base.labels is not None:
            return
        views = self._views
        is_list = views is not None and views.is_list
        parts = (
            views.count
            if views is not None and is_list
            else batches.cuts[1] // self._frames * (views.count if views else 1)
        )
        if parts == 2:
            self._may_be_unpacked = False
            one = "view" if is_list else "picture"
            log.warning(
                "%s: has no labels, so a batch is a single %s, here of two %ss; `for images, labels in "
                "loader` would take the second %s for labels: write `for images in loader`, or pack with "
                "labels",
                self._path,
                "list" if is_list else "tensor",
                one,
                one,
            )

    def _settle(self, ledger: EpochLedger, skipped: list[FinishedBatch], finished: FinishedBatch, number: int) -> None:
        """
        Record the bad samples of batch ``number`` of an iteration, and it in ``skipped`` if it is handed out without
        them.
        """
        ledger.note_errors(number, finished.errors, finished.lost)
        for error in finished.errors:
            if error.index not in self.skipped:
                self.skipped[error.index] = error
                log.warning("%s: %s", "skipped" if self._options.on_error == "skip" else "zeroed", error)
        if self._options.on_error == "skip":
            skipped.append(replace(finished, batch=None))
        if not finished.samples and self._selection.plan.share.world_size > 1:
            # Continuing would leave this rank a batch short, and the others would wait for it for ever.
            raise finished.errors[0]

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


def _numbered(batch: Any, batches: Batches, number: int, epoch: int, skipped: list[FinishedBatch]) -> Numbered:
    """Return batch ``number`` with the ids of its samples for random numbers, without those skipped."""
    one = batches.part(number, number + 1)
    ids = one.ids
    for finished in skipped:
        bad = [error.index for error in finished.errors]
        lost = np.flatnonzero(np.isin(one.indices, bad)) if finished.lost is None else finished.lost
        ids = np.delete(ids, lost)
    return Numbered(batch, epoch, ids)


# EpochIterator: what iterating over a loader returns.


class EpochIterator:
    """
    Hands out the batches of one epoch, to one thread at a time.

    Raises RuntimeError if another thread is waiting for its batch, and if ``next`` is called again after an error or
    Ctrl-C: what is left of the epoch would otherwise be lost without a word.
    """

    __slots__ = ("__weakref__", "_batches", "_ended_with")

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._ended_with = ""  # the error

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # Nothing here may keep the batch while the loop uses it, or its memory would be returned late.
        try:
            return next(self._batches)
        except StopIteration:
            if self._ended_with:
                raise RuntimeError(
                    f"this iterator has ended with {self._ended_with}: begin another iteration; after "
                    "loader.load_state_dict(loader.state_dict()), it goes on behind the latest batch"
                ) from None
            raise
        except BaseException as exc:
            if _is_in_use(exc):
                raise RuntimeError(
                    "another thread is waiting for a batch of this iterator: give each thread an iterator of its own, "
                    "which is an epoch of its own, or call next() under a lock"
                ) from None
            self._ended_with = type(exc).__name__
            raise

    def close(self) -> None:
        """End the iteration; calling it twice is harmless."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def _is_in_use(error: BaseException) -> bool:
    """Whether a generator itself raised the error of ``next``, because another thread is in it."""
    trace = error.__traceback__
    return isinstance(error, ValueError) and trace is not None and trace.tb_next is None
