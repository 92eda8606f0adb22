"""Makes batches of token ids by native jobs, several batches per job: one batch is too little work for a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.loader.forks import PerProcess
from fastio.loader.producer.buffers import BatchBuffers
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.loader.producer.token_filling import Filling, TokenFiller, slot_bytes
from fastio.loader.producer.token_source import Located, PendingRead, TokenSource
from fastio.samplers.batches import Batches

__all__ = ["TokenProducer"]

# The approximate memory of the batches of one job: they share a buffer, which lives as long as any of them.
CHUNK_BYTES = 4 << 20
_KEPT = 4  # free buffers: as many as the end of an epoch returns, because new memory costs more than filling it
_IDLE = 2  # about this many, while batches are made
_LOOKED_AT = 64  # batches whose size stands for the others


@dataclass(frozen=True, slots=True)
class _Fillers:
    """Threads and memory of one process."""

    filler: TokenFiller
    source: TokenSource

    def close(self) -> None:
        """Join the threads."""
        self.source.close()
        self.filler.pool.close()


class TokenProducer:
    """
    Lays out a few batches at a time, lets native threads fill their buffer, and returns views of it.

    The buffer comes from a ring, or with ``pin_memory`` from torch's allocator of pinned memory, for the reason given
    in ``NativeProducer``.
    """

    reads_samples = False
    pool = None
    chunks_ahead = 2  # a chunk is looked up when the first batch of two chunks before it begins

    def __init__(self, context: ProducerContext) -> None:
        assert context.collate is not None
        self._context = context
        self._collate = context.collate
        self._chunk_size = 1  # batches in a chunk
        self._machinery = PerProcess(partial(_start, context))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Token ids as they are stored, in batches of ours."""
        return context.collate is not None and context.dataset.is_as_stored

    @property
    def threads(self) -> int:
        """As many as there are."""
        return self._context.options.threads

    @property
    def buffer_bytes(self) -> int:
        """Memory of batches, and of copies of the ids in them; 0 in a forked child that has made none."""
        machinery = self._machinery.own
        return 0 if machinery is None else machinery.filler.buffers.allocated_bytes + machinery.source.buffer_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """
        Return the bytes of whole chunks: those requested ahead, the next, the loop's, one in between and idle ones;
        with stored ids.

        ``batch_bytes`` does not matter: all batches of a chunk share its buffer.
        """
        machinery = self._machinery.own
        if machinery is None:
            return 0
        chunks = -(-depth // self._chunk_size) + 3 + _IDLE
        return chunks * machinery.filler.buffers.largest_bytes + machinery.source.buffer_bytes

    def close(self) -> None:
        """Join the threads; a job in progress is finished first."""
        machinery = self._machinery.own
        if machinery is not None:
            machinery.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_TokenChunk]:
        """Start a chunk of batches when the first of the chunk before is requested, while the next one is read."""
        if len(batches) == 0:
            return
        step = self._chunk_size = self.chunk_batches(batches)
        is_read = batches.windows is not None  # the loader has read whole windows at once
        batches = replace(batches, windows=None)
        chunk, coming = None, self._coming(batches.part(0, step), is_read=is_read)
        for first in range(step, len(batches) + step, step):
            ahead, coming = coming, self._coming(batches.part(first, first + step), is_read=is_read)
            before, chunk = chunk, _TokenChunk(self, ahead)
            if before is not None:
                yield from before.batches()
        if chunk is not None:
            yield from chunk.batches()

    def _coming(self, batches: Batches, *, is_read: bool) -> PerProcess[PendingRead]:
        return PerProcess(partial(self.look_up, batches, is_read=is_read))

    def chunk_batches(self, batches: Batches) -> int:
        """Return the batches in a chunk, by the slots (with padding) of some that are spread over the epoch."""
        files = self._context.dataset.store.files
        size = CHUNK_BYTES if files.in_place else files.chunk_bytes  # more for copies: neighbours come together
        some = _spread(batches)
        lengths = self._context.dataset.lengths[some.indices]
        try:
            slots = int(self._collate.slots(lengths, some.cuts).cuts[-1])
        except ValueError:  # one does not fit its collate: raised when that batch is requested
            slots = int(lengths.sum())
        return int(max(1, size * len(some) // (slot_bytes(self._collate) * slots + 1)))

    def look_up(self, batches: Batches, *, is_read: bool = False) -> PendingRead:
        """Begin to read these samples."""
        return self._machinery.here().source.look_up(batches, is_read=is_read)

    def fill(self, located: Located) -> Filling:
        """Start to fill the buffer of some batches. Raises ValueError if one does not fit its collate."""
        verify = self._context.options.verify
        return self._machinery.here().filler.fill(located.spans, located.batches.cuts, verify=verify)

    def finished(self, located: Located, filling: Filling) -> Iterator[FinishedBatch]:
        """Yield the batches of a buffer once it is filled."""
        filling.job.wait()
        if located.unread is not None:
            np.copyto(filling.status, located.unread, where=located.unread != _native.OK)
        filler = self._machinery.here().filler
        indices = located.batches.indices
        batches = filling.finished(filler.batches(filling, indices), filler.checked(indices, located.spans))
        return _repaired(filler, located, batches, filling.status) if filling.status.any() else batches


def _start(context: ProducerContext) -> _Fillers:
    """Threads and memory for the calling process."""
    options, tokens = context.options, context.dataset.token_reader
    assert tokens is not None
    assert context.collate is not None
    buffers = BatchBuffers(_KEPT, is_pinned=options.pin_memory)
    filler = TokenFiller(context, tokens, context.collate, _native.ThreadPool(options.threads), buffers)
    return _Fillers(filler, TokenSource(context.dataset, checksums=options.verify or context.dataset.store.files.holds))


class _TokenChunk:
    """Batches in progress that one job fills."""

    def __init__(self, producer: TokenProducer, coming: PerProcess[PendingRead]) -> None:
        self._producer = producer
        self._begun = PerProcess(partial(_begin, producer, coming))
        self._count = len(self._begun.here()[0].batches)
        self._finished: Iterator[FinishedBatch] | None = None

    def batches(self) -> Iterator[_TokenChunk]:
        """Yield itself once per batch: they come in order, so the next one is always meant."""
        return repeat(self, self._count)

    def cancel(self) -> None:
        """Cancel the batch, and with it the others: samples not yet begun are skipped."""
        begun = self._begun.own
        if begun is not None and begun[1] is not None:
            begun[1].job.cancel()

    def result(self) -> FinishedBatch:
        """Return the next batch; a forked child fills again what its parent's threads had in progress."""
        if self._finished is None:
            located, filling = self._begun.here()
            if filling is None:
                self._finished = _one_by_one(self._producer, located)
            else:
                self._finished = self._producer.finished(located, filling)
        return next(self._finished)


# Functions, not methods: a generator that holds its chunk, which holds the generator, would wait for the garbage
# collector.


def _begin(producer: TokenProducer, coming: PerProcess[PendingRead]) -> tuple[Located, Filling | None]:
    """Samples that have come, and the buffer being filled with them; None where a batch does not fit its collate."""
    located = coming.here().wait()
    with suppress(ValueError):  # raised where that batch is asked for
        return located, producer.fill(located)
    return located, None


def _one_by_one(producer: TokenProducer, located: Located) -> Iterator[FinishedBatch]:
    """Yield batches of which one does not fit; raises ValueError for that one."""
    for number in range(len(located.batches)):
        one = producer.look_up(located.batches.part(number, number + 1)).wait()
        yield from producer.finished(one, producer.fill(one))


def _repaired(
    filler: TokenFiller, located: Located, batches: Iterator[FinishedBatch], status: NDArray[np.int32]
) -> Iterator[FinishedBatch]:
    """Yield the batches; the policy for bad samples has been applied to those with bad ones."""
    for number, part in enumerate(located.batches.slices()):
        if status[part].any():
            next(batches)
            yield filler.repaired(located.batches.part(number, number + 1), located.spans.at(part), status[part])
        else:
            yield next(batches)


def _spread(batches: Batches) -> Batches:
    """Return a few of the batches, spread over the whole epoch."""
    numbers = np.unique(np.linspace(0, len(batches) - 1, _LOOKED_AT).astype(np.int64))
    starts, stops = batches.cuts[numbers], batches.cuts[numbers + 1]
    chosen = [batches.indices[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return Batches(np.concatenate(chosen), np.concatenate(([0], np.cumsum(stops - starts))))
