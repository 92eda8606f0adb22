"""Makes batches by native jobs: one call per batch, into memory that is recycled when its tensor dies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.row_reader import is_uniform
from fastio.errors import SchemaError
from fastio.loader.forks import PerProcess
from fastio.loader.producer.buffers import BatchBuffers
from fastio.loader.producer.decoding import ChunkPart, RowDecoder, SampleChunk, row_shape
from fastio.loader.producer.pillow_threads import PillowCount, PillowThreads
from fastio.loader.producer.producer import PendingBatch, ProducerContext, RestartedBatch
from fastio.samplers.batches import Batches
from fastio.store.files import Fetched
from fastio.types.spans import Spans

__all__ = ["NativeProducer"]

# Samples looked up at a time, and read ahead of the current batches. In the page cache this takes the current chunk
# and the next one: of whole blocks at most 8 times their bytes (see readahead.h), 2 windows = 64 MiB when shuffled.
READ_AHEAD_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The samples of a chunk on their way into memory: into the page cache, or (``fetched``) into our own."""

    batches: Batches
    fetched: PerProcess[Fetched]


@dataclass(slots=True)
class _Decoders:
    """Threads and memory of one process."""

    decoder: RowDecoder
    disk: _native.ThreadPool
    # Copies of the chunk ahead, and of the one before while it is decoded.
    staging: _native.BufferRing = field(default_factory=lambda: _native.BufferRing(2))


class NativeProducer:
    """
    Decodes each batch by one native call into memory that is recycled when its tensor dies.

    With ``pin_memory``, buffers are torch's own pinned memory instead of the ring's: a copy to the device with
    ``non_blocking=True`` still reads a batch after its tensor has died. Only torch's caching host allocator knows
    when that copy is over; the ring would reuse the memory too early.
    """

    reads_samples = False

    def __init__(self, context: ProducerContext) -> None:
        self._context = context
        self._pillow_count = PillowCount(context.dataset.store.path)
        self._machinery = PerProcess(partial(_start, context, self._pillow_count))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Values that the native core decodes into rows, unchanged."""
        return context.dataset.is_as_stored and context.dataset.reader.has_rows

    @property
    def pool(self) -> _native.ThreadPool:
        """The threads that decode."""
        return self._machinery.here().decoder.pool

    @property
    def threads(self) -> int:
        """The number of threads that start batches now."""
        return self.pool.used

    @property
    def buffer_bytes(self) -> int:
        """Memory of batches, and of copies of what is decoded into them."""
        machinery = self._machinery.here()
        return machinery.decoder.buffers.allocated_bytes + machinery.staging.allocated_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Return the bytes of batches in progress, of the loop's and of one in between."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; a batch in progress is finished first."""
        machinery = self._machinery.own
        if machinery is not None:
            machinery.decoder.close()
            machinery.disk.close()
            self._pillow_count.tell()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[PendingBatch]:
        """Start one batch per step, while one chunk is read ahead."""
        if len(batches) == 0:
            return
        step = self._chunk_batches(batches)
        is_read = batches.windows is not None  # the loader has read whole windows at once
        batches = replace(batches, windows=None)
        ahead = self._read_ahead(batches.part(0, step), is_read=is_read)
        for first in range(0, len(batches), step):
            now, ahead = ahead, self._read_ahead(batches.part(first + step, first + 2 * step), is_read=is_read)
            chunk = self._look_up(now, epoch)
            for part in chunk.batches.slices():
                is_last = first + step >= len(batches) and part.stop == len(chunk.indices)
                yield RestartedBatch(partial(self._begin, ChunkPart(chunk, part, is_last)))

    def _begin(self, part: ChunkPart) -> PendingBatch:
        return self._machinery.here().decoder.begin(part)

    def _chunk_batches(self, batches: Batches) -> int:
        """Return the batches in a chunk, by the size of samples: those of the first batches stand for all."""
        some = batches.part(0, 4)
        size_bytes = int(self._spans(some).sizes.sum())
        return int(max(1, READ_AHEAD_BYTES * len(some) // max(1, size_bytes)))

    def _spans(self, batches: Batches) -> Spans:
        reader = self._context.dataset.reader
        return reader.store.spans(reader.field.name, batches.indices)

    def _read_ahead(self, batches: Batches, *, is_read: bool) -> _Ahead:
        """Begin to bring these samples into memory; ``is_read``: somebody else has them read ahead already."""
        return _Ahead(batches, PerProcess(partial(self._fetch, self._spans(batches), is_near=is_read)))

    def _fetch(self, spans: Spans, *, is_near: bool) -> Fetched:
        files, machinery = self._context.dataset.store.files, self._machinery.here()
        return files.fetch(spans, pool=machinery.disk, ring=machinery.staging, is_near=is_near)

    def _look_up(self, ahead: _Ahead, epoch: int) -> SampleChunk:
        """What these samples decode to, and their labels, once they are in memory."""
        spans, unread = ahead.fetched.here().wait()
        return replace(self._described(ahead.batches, spans, epoch), unread=unread)

    def _described(self, batches: Batches, spans: Spans, epoch: int) -> SampleChunk:
        dataset, fused = self._context.dataset, self._context.fused
        reader, labels, indices = dataset.reader, dataset.labels, batches.indices
        chosen = None if labels is None else labels[indices]
        if fused is None and reader.row_shape is not None:
            return SampleChunk(batches, spans, chosen, None, reader.row_shape, epoch)
        shapes = stored = reader.shapes(indices, spans)
        planned = None
        if fused is not None:
            try:
                planned = fused.plan(batches.ids, stored, epoch=epoch)
                shapes = planned.shapes
            except SchemaError:
                shapes = np.zeros_like(stored)
        shape = row_shape(shapes[0], is_planar=self._context.is_planar) if _has_one_shape(shapes) else None
        return SampleChunk(batches, spans, chosen, stored, shape, epoch, planned)


def _start(context: ProducerContext, pillow_count: PillowCount) -> _Decoders:
    """Threads and memory for the calling process."""
    options = context.options
    buffers = BatchBuffers(options.depth + 2, is_pinned=options.pin_memory)
    pillow = PillowThreads(options.threads)
    decoder = RowDecoder(context, _native.ThreadPool(options.threads), buffers, pillow, pillow_count)
    return _Decoders(decoder, _native.ThreadPool(context.dataset.store.files.threads))


def _has_one_shape(shapes: NDArray[np.int64]) -> bool:
    """Whether all shapes are equal and none is that of a bad header."""
    return is_uniform(shapes) and bool(shapes[0].all())
