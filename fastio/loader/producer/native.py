"""Batches by native jobs: one call a batch, into memory that is recycled when its tensor dies."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.reading import Fetched
from fastio.dataset.row_reader import Shape, is_uniform, one_by_one
from fastio.dataset.undecoded import UndecodedRows
from fastio.errors import SampleError, SchemaError
from fastio.loader.producer.pillow_threads import PendingRows, PillowCount, PillowThreads
from fastio.loader.producer.producer import FinishedBatch, OnError
from fastio.samplers.batches import Batches
from fastio.transforms.fused import Fused, Planned
from fastio.types.spans import Spans

__all__ = ["NativeProducer", "PillowFinish"]

# Samples looked up at a time, and read ahead of the batches under way. Of the page cache that takes the chunk under way
# and the one ahead: of whole blocks at most 8 times their bytes (see readahead.h), 2 windows = 64 MiB when shuffled.
READ_AHEAD_BYTES = 16 << 20

# A mapping is read ahead by one thread, which waits where the disk does. By pread four share a chunk: a server answers
# several questions at once.
_PREAD_THREADS = 4


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The samples of a chunk on their way into memory: the page cache's, or (``fetched``) our own."""

    batches: Batches
    spans: Spans
    fetched: Fetched | None
    pid: int


@dataclass(frozen=True, slots=True)
class _SampleChunk:
    """A few batches' worth of samples, looked up at once: a look-up per batch would cost more than the batch."""

    batches: Batches
    spans: Spans
    labels: NDArray[Any] | None
    stored: NDArray[np.int64] | None  # the shape of each value before transforms; None where the field fixes it
    shape: Shape | None  # where all rows have the same one
    epoch: int
    planned: Planned | None = None  # None with transforms: they fail for some sample, and each batch finds out
    unread: NDArray[np.int32] | None = None  # the status of each sample, where some could not be read

    @property
    def indices(self) -> NDArray[np.int64]:
        """All samples of the chunk."""
        return self.batches.indices


@dataclass(frozen=True, slots=True)
class PillowFinish:
    """What is left to do for pictures that Pillow decodes: the transforms, by Pillow too."""

    fused: Fused
    planned: Planned
    epoch: int
    is_planar: bool

    def channels(self, position: int) -> int:
        """As stored, or those of the dataset's mode."""
        return int(self.planned.stored[position, 2])

    def row(self, position: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """As PixelsToRow.row."""
        if pixels.shape != tuple(self.planned.stored[position].tolist()):
            return None
        row = self.fused.apply(self.planned, position, pixels, epoch=self.epoch)
        return row.transpose(2, 0, 1) if self.is_planar else row


class NativeProducer:
    """
    Decodes each batch by one native call into memory that is recycled when its tensor dies.

    With ``pin_memory`` the buffers are torch's own pinned memory instead of the ring's: a copy to the
    device with ``non_blocking=True`` still reads a batch after its tensor has died, and only torch's caching host
    allocator knows when it is over; the ring would hand the memory to the next batch too early.
    """

    def __init__(
        self,
        dataset: FastDataset,
        *,
        threads: int,
        verify: bool,
        depth: int,
        on_error: OnError,
        pin_memory: bool,
        fused: Fused | None,
        is_planar: bool,
    ) -> None:
        self._dataset = dataset
        self._reader = dataset.reader
        self._fused = fused
        self._is_planar = is_planar
        self._threads = threads
        self._verify = verify
        self._depth = depth
        self._on_error = on_error
        self._pin_memory = pin_memory
        self._pinned_bytes = 0
        self._pillow_count = PillowCount(dataset.store.path)
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._pool = _native.ThreadPool(self._threads)
        self._pillow = PillowThreads(self._threads)
        self._disk = _native.ThreadPool(1 if self._dataset.files is None else _PREAD_THREADS)
        self._ring = _native.BufferRing(self._depth + 2)
        self._staging = _native.BufferRing(2)  # by pread: the chunk ahead and the one before, as long as it is decoded
        self._advice: _native.Job | None = None  # kept: a job that is dropped is cancelled

    @property
    def pool(self) -> _native.ThreadPool:
        """The threads that decode."""
        return self._pool

    @property
    def threads(self) -> int:
        """How many threads begin batches now."""
        return self._pool.used

    @property
    def buffer_bytes(self) -> int:
        """The rings' memory; for pinned buffers, whose allocator is torch's, what the batches ahead need."""
        batches = self._pinned_bytes if self._pin_memory else self._ring.allocated_bytes
        return batches + self._staging.allocated_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Those under way, the loop's, and one between."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; a batch under way is finished first."""
        if self._pid == os.getpid():
            self._pool.close()
            self._pillow.close()
            self._disk.close()
            self._pillow_count.tell()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_NativeBatch]:
        """Start one batch at each step, with one chunk being read ahead."""
        if len(batches) == 0:
            return
        step = self._chunk_batches(batches)
        is_read = batches.windows is not None  # by the loader, whole windows at once
        batches = replace(batches, windows=None)
        ahead = self._read_ahead(batches.part(0, step), is_read=is_read)
        for first in range(0, len(batches), step):
            now, ahead = ahead, self._read_ahead(batches.part(first + step, first + 2 * step), is_read=is_read)
            chunk = self._look_up(now, epoch)
            for part in chunk.batches.slices():
                is_last = first + step >= len(batches) and part.stop == len(chunk.indices)
                yield _NativeBatch(self, chunk, part, is_last=is_last)

    def _chunk_batches(self, batches: Batches) -> int:
        """Batches in a chunk, by the size of samples: those of the first batches stand for all."""
        some = batches.part(0, 4)
        sizes = self._reader.store.spans(self._reader.field.name, some.indices).sizes
        return int(max(1, READ_AHEAD_BYTES * len(some) // max(1, int(sizes.sum()))))

    def _read_ahead(self, batches: Batches, *, is_read: bool) -> _Ahead:
        """Where these samples lie; somebody begins to read them, unless the page cache has them (``is_read``)."""
        self._restart_after_fork()
        reader, files = self._reader, self._dataset.files
        spans = reader.store.spans(reader.field.name, batches.indices)
        if files is not None:
            fetched = files.fetch(spans, pool=self._disk, ring=self._staging)
            return _Ahead(batches, spans, fetched, self._pid)
        if len(spans) and not is_read:
            self._advice = _native.read_ahead(spans, pool=self._disk)
        return _Ahead(batches, spans, None, self._pid)

    def _look_up(self, ahead: _Ahead, epoch: int) -> _SampleChunk:
        """What these samples decode to, and their labels; where they are read by pread, they are there then."""
        self._restart_after_fork()
        fetched = ahead.fetched
        if fetched is not None and ahead.pid != self._pid:
            fetched = self._read_ahead(
                ahead.batches, is_read=True
            ).fetched  # a forked child has none of its parent's threads
        if fetched is None:
            return self._described(ahead.batches, ahead.spans, epoch)
        spans, unread = fetched.wait()
        return replace(self._described(ahead.batches, spans, epoch), unread=unread)

    def _described(self, batches: Batches, spans: Spans, epoch: int) -> _SampleChunk:
        reader, labels, indices = self._reader, self._dataset.labels, batches.indices
        chosen = None if labels is None else labels[indices]
        if self._fused is None and reader.row_shape is not None:
            return _SampleChunk(batches, spans, chosen, None, reader.row_shape, epoch)
        shapes = stored = reader.shapes(indices, spans)
        planned = None
        if self._fused is not None:
            try:
                planned = self._fused.plan(batches.ids, stored, epoch=epoch)
                shapes = planned.shapes
            except SchemaError:
                shapes = np.zeros_like(stored)
        shape = self._as_row(shapes[0]) if is_uniform(shapes) and shapes[0].all() else None
        return _SampleChunk(batches, spans, chosen, stored, shape, epoch, planned)

    def _as_row(self, shape: NDArray[np.int64] | Shape) -> Shape:
        """The shape of a row in memory, from that of a picture or array."""
        height, *others = (int(size) for size in shape)
        return (others[1], height, others[0]) if self._is_planar else (height, *others)

    def plan(self, chunk: _SampleChunk, part: slice) -> tuple[Shape, Planned | None]:
        """The shape of a batch's rows and its plan; SchemaError where there are several, or a transform fails."""
        planned = None
        if self._fused is not None:
            assert chunk.stored is not None
            if chunk.planned is None:
                planned = self._fused.plan(chunk.batches.ids[part], chunk.stored[part], epoch=chunk.epoch)
            else:
                planned = chunk.planned.part(part)
        if chunk.shape is not None:
            return chunk.shape, planned
        assert chunk.stored is not None
        shapes = chunk.stored[part] if planned is None else planned.shapes
        return self._as_row(self._reader.common_shape(chunk.indices[part], shapes)), planned

    def _restart_after_fork(self) -> None:
        """Threads do not come along into a forked child: it gets its own, and memory of its own."""
        if self._pid != os.getpid():
            self._start()

    def _buffer(self, count: int, shape: Shape) -> tuple[NDArray[Any], torch.Tensor]:
        """An uninitialised array for ``count`` rows, and a tensor over the same memory."""
        dtype = self._reader.dtype
        if self._pin_memory:
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
            pinned = torch.empty((count, *shape), dtype=kind, device="cpu", pin_memory=True)
            self._pinned_bytes = max(self._pinned_bytes, pinned.nbytes * (self._depth + 2))
            return pinned.numpy(), pinned
        memory = self._ring.acquire(count * math.prod(shape) * dtype.itemsize)
        rows = memory.view(dtype).reshape(count, *shape)
        return rows, torch.from_numpy(rows)

    def _batch(self, rows: torch.Tensor, labels: NDArray[Any] | None) -> Any:
        """What the training loop gets: a list, as of torch's default collate."""
        # (B, H, W, C) in memory becomes (B, C, H, W) in channels_last: another view, no copy.
        images = rows.permute(0, 3, 1, 2) if self._reader.is_picture and not self._is_planar else rows
        if labels is None:
            return images
        target_transform = self._dataset.target_transform
        if target_transform is not None:
            return [images, default_collate([target_transform(label) for label in one_by_one(labels)])]
        tensor = torch.from_numpy(labels)
        return [images, tensor.pin_memory() if self._pin_memory else tensor]


class _NativeBatch:
    """One batch that native threads decode, and Pillow's threads where they cannot."""

    __slots__ = (
        "_chunk",
        "_error",
        "_is_cancelled",
        "_is_last",
        "_job",
        "_part",
        "_pending",
        "_pid",
        "_planned",
        "_producer",
        "_rows",
        "_spans",
        "_status",
        "_tensor",
        "_undecoded",
    )

    def __init__(self, producer: NativeProducer, chunk: _SampleChunk, part: slice, *, is_last: bool) -> None:
        self._producer = producer
        self._chunk = chunk
        self._part = part
        self._is_last = is_last
        self._is_cancelled = False
        self._begin()

    def _begin(self) -> None:
        producer, chunk, part = self._producer, self._chunk, self._part
        reader = producer._reader
        producer._restart_after_fork()
        self._pid = producer._pid
        self._error: SchemaError | None = None
        self._undecoded: UndecodedRows | None = None
        self._pending: Future[PendingRows | None] | None = None
        try:
            shape, self._planned = producer.plan(chunk, part)
        except SchemaError as exc:
            self._error = exc  # belongs to this batch: those before it are still good
            return
        self._rows, self._tensor = producer._buffer(part.stop - part.start, shape)
        self._status = np.empty(part.stop - part.start, np.int32)
        self._spans = chunk.spans.at(part)
        geometry = None
        if self._planned is not None:
            assert producer._fused is not None
            channels = shape[0] if producer._is_planar else shape[2]
            geometry = producer._fused.geometry(self._planned, channels=channels, is_planar=producer._is_planar)
        self._job = reader.decode(
            self._spans, self._rows, self._status, pool=producer._pool, verify=producer._verify, geometry=geometry
        )
        if producer._pillow.has_begun:  # most stores have no picture for Pillow: their batches need no other thread
            self._pending = producer._pillow.call_later(self._settle)

    def cancel(self) -> None:
        """Samples not yet begun are skipped."""
        if self._error is None and self._pid == os.getpid():
            self._is_cancelled = True  # before the job is: its status says nothing then
            self._job.cancel()
            if self._undecoded is not None:
                self._undecoded.cancel()

    def result(self) -> FinishedBatch:
        """The batch; a forked child decodes anew what its parent's threads had under way."""
        if self._pid != os.getpid():
            self._begin()
        if self._error is not None:
            raise self._error
        pending = self._settle() if self._pending is None else self._pending.result()
        settled = None if pending is None else pending.result()
        kinds = None if settled is None else settled.kinds
        self._producer._pillow_count.add(len(self._status), kinds, is_last=self._is_last)
        labels = None if self._chunk.labels is None else self._chunk.labels[self._part]
        if settled is not None and settled.errors:
            return self._repaired(settled.errors, labels)
        return FinishedBatch(self._producer._batch(self._tensor, labels), len(self._status), self._rows.nbytes)

    def _settle(self) -> PendingRows | None:
        """Wait for the native job, and begin to settle the rows that it did not fill; None if there are none."""
        self._job.wait()
        if self._is_cancelled:
            return None
        if self._chunk.unread is not None:
            unread = self._chunk.unread[self._part]
            np.copyto(self._status, unread, where=unread != _native.OK)
        if not self._status.any():
            return None
        producer, to_row = self._producer, None
        if self._planned is not None:
            assert producer._fused is not None
            to_row = PillowFinish(producer._fused, self._planned, self._chunk.epoch, producer._is_planar)
        indices = self._chunk.indices[self._part]
        reader = producer._reader
        self._undecoded = reader.undecoded(indices, self._spans, self._rows, self._status, to_row=to_row)
        return producer._pillow.settle(self._undecoded)

    def _repaired(self, bad: dict[int, SampleError], labels: NDArray[Any] | None) -> FinishedBatch:
        """The batch after the policy for bad samples was applied."""
        producer, tensor, errors = self._producer, self._tensor, list(bad.values())
        if producer._on_error == "raise":
            raise errors[0]
        if producer._on_error == "zero":
            self._rows[list(bad)] = 0
        else:
            kept = np.setdiff1d(np.arange(len(self._status)), list(bad))
            tensor = torch.from_numpy(self._rows[kept])  # not by torch: see PlainProducer.start on forked children
            tensor = tensor.pin_memory() if producer._pin_memory else tensor
            labels = None if labels is None else labels[kept]
        return FinishedBatch(producer._batch(tensor, labels), len(tensor), self._rows.nbytes, errors)
