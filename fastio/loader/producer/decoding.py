"""One batch of rows by one native call: begun, finished, and repaired where samples are bad."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.row_reader import Shape
from fastio.dataset.undecoded import UndecodedRows
from fastio.errors import SampleError, SchemaError
from fastio.loader.producer.buffers import BatchBuffers
from fastio.loader.producer.labels import collate_labels
from fastio.loader.producer.pillow_threads import PendingRows, PillowCount, PillowThreads
from fastio.loader.producer.producer import FinishedBatch, PendingBatch, ProducerContext
from fastio.samplers.batches import Batches
from fastio.transforms.fused import Fused, Planned
from fastio.types.spans import Spans

__all__ = ["ChunkPart", "PillowFinish", "RowDecoder", "SampleChunk", "row_shape"]


@dataclass(frozen=True, slots=True)
class SampleChunk:
    """The samples of a few batches, looked up at once: a look-up per batch would cost more than the batch."""

    batches: Batches
    spans: Spans
    labels: NDArray[Any] | None
    stored: NDArray[np.int64] | None  # the shape of each value before transforms; None if the field fixes it
    shape: Shape | None  # the row's shape, if all rows have the same one
    epoch: int
    # None with transforms: they fail for some sample, and each batch finds out for itself.
    planned: Planned | None = None
    unread: NDArray[np.int32] | None = None  # the status of each sample, if some could not be read

    @property
    def indices(self) -> NDArray[np.int64]:
        """All samples of the chunk."""
        return self.batches.indices


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """The samples of one batch, a part of a chunk; ``is_last`` in the epoch."""

    chunk: SampleChunk
    part: slice
    is_last: bool

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    @property
    def indices(self) -> NDArray[np.int64]:
        """The index of each sample."""
        return self.chunk.indices[self.part]

    @property
    def spans(self) -> Spans:
        """Where their values lie."""
        return self.chunk.spans.at(self.part)

    @property
    def labels(self) -> NDArray[Any] | None:
        """Their labels as stored."""
        return None if self.chunk.labels is None else self.chunk.labels[self.part]


@dataclass(frozen=True, slots=True)
class PillowFinish:
    """The rest of the work for pictures that Pillow decodes: the transforms, also done by Pillow."""

    fused: Fused
    planned: Planned
    epoch: int
    is_planar: bool

    def channels(self, position: int) -> int:
        """Return the channels as stored, or those of the dataset's mode."""
        return int(self.planned.stored[position, 2])

    def row(self, position: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """As PixelsToRow.row."""
        if pixels.shape != tuple(self.planned.stored[position].tolist()):
            return None
        row = self.fused.apply(self.planned, position, pixels, epoch=self.epoch)
        return row.transpose(2, 0, 1) if self.is_planar else row


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decodes batches, on the threads and into the memory of one process; ``pillow_count`` is the producer's."""

    context: ProducerContext
    pool: _native.ThreadPool
    buffers: BatchBuffers
    pillow: PillowThreads
    pillow_count: PillowCount

    def begin(self, samples: ChunkPart) -> PendingBatch:
        """Start a batch of these samples; if its rows cannot have one shape, its result says so."""
        context, reader = self.context, self.context.dataset.reader
        try:
            shape, planned = self._plan(samples)
        except SchemaError as exc:
            return _Impossible(exc)  # the error belongs to this batch: those before it are still good
        rows, tensor = self.buffers.take_rows((len(samples), *shape), reader.dtype)
        status = np.empty(len(samples), np.int32)
        geometry = None
        if context.fused is not None and planned is not None:
            channels = shape[0] if context.is_planar else shape[2]
            geometry = context.fused.geometry(planned, channels=channels, is_planar=context.is_planar)
        verify = context.options.verify
        job = reader.decode(samples.spans, rows, status, pool=self.pool, verify=verify, geometry=geometry)
        return _NativeBatch(self, samples, planned, rows, tensor, status, job)

    def _plan(self, samples: ChunkPart) -> tuple[Shape, Planned | None]:
        """
        Return the shape of a batch's rows and its plan. Raises SchemaError if shapes differ, or if a transform fails.
        """
        context, chunk, part, planned = self.context, samples.chunk, samples.part, None
        if context.fused is not None:
            assert chunk.stored is not None
            if chunk.planned is None:
                planned = context.fused.plan(chunk.batches.ids[part], chunk.stored[part], epoch=chunk.epoch)
            else:
                planned = chunk.planned.part(part)
        if chunk.shape is not None:
            return chunk.shape, planned
        assert chunk.stored is not None
        shapes = chunk.stored[part] if planned is None else planned.shapes
        common = context.dataset.reader.common_shape(samples.indices, shapes)
        return row_shape(common, is_planar=context.is_planar), planned

    def close(self) -> None:
        """Join the threads; what is under way is finished first."""
        self.pool.close()
        self.pillow.close()


@dataclass(frozen=True, slots=True)
class _Impossible:
    """A batch that could not begin."""

    error: SchemaError

    def result(self) -> FinishedBatch:
        """Raises what is wrong with it."""
        raise self.error

    def cancel(self) -> None:
        """Nothing is under way."""


class _NativeBatch:
    """One batch that native threads decode, and Pillow's threads where they cannot."""

    __slots__ = (
        "_decoder",
        "_is_cancelled",
        "_job",
        "_pending",
        "_planned",
        "_rows",
        "_samples",
        "_status",
        "_tensor",
        "_undecoded",
    )

    def __init__(
        self,
        decoder: RowDecoder,
        samples: ChunkPart,
        planned: Planned | None,
        rows: NDArray[Any],
        tensor: torch.Tensor,
        status: NDArray[np.int32],
        job: _native.Job,
    ) -> None:
        self._decoder = decoder
        self._samples = samples
        self._planned = planned
        self._rows, self._tensor = rows, tensor
        self._status = status
        self._job = job
        self._is_cancelled = False
        self._undecoded: UndecodedRows | None = None
        self._pending: Future[PendingRows | None] | None = None
        if decoder.pillow.has_begun:  # most stores have no picture for Pillow: their batches need no other thread
            self._pending = decoder.pillow.call_later(self._settle)

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        self._is_cancelled = True  # before the job is: its status says nothing then
        self._job.cancel()
        if self._undecoded is not None:
            self._undecoded.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when all its rows are there."""
        pending = self._settle() if self._pending is None else self._pending.result()
        settled = None if pending is None else pending.result()
        kinds = None if settled is None else settled.kinds
        self._decoder.pillow_count.add(len(self._status), kinds, is_last=self._samples.is_last)
        if settled is not None and settled.errors:
            return self._repaired(settled.errors)
        return FinishedBatch(self._batch(self._tensor, self._samples.labels), len(self._status), self._rows.nbytes)

    def _settle(self) -> PendingRows | None:
        """Wait for the native job, and begin to settle the rows that it did not fill; None if there are none."""
        self._job.wait()
        if self._is_cancelled:
            return None
        samples, context = self._samples, self._decoder.context
        if samples.chunk.unread is not None:
            unread = samples.chunk.unread[samples.part]
            np.copyto(self._status, unread, where=unread != _native.OK)
        if not self._status.any():
            return None
        to_row = None
        if context.fused is not None and self._planned is not None:
            to_row = PillowFinish(context.fused, self._planned, samples.chunk.epoch, context.is_planar)
        reader = context.dataset.reader
        self._undecoded = reader.undecoded(samples.indices, samples.spans, self._rows, self._status, to_row=to_row)
        return self._decoder.pillow.settle(self._undecoded)

    def _repaired(self, bad: dict[int, SampleError]) -> FinishedBatch:
        """The batch after the policy for bad samples was applied."""
        options, tensor, errors = self._decoder.context.options, self._tensor, list(bad.values())
        labels = self._samples.labels
        if options.on_error == "raise":
            raise errors[0]
        if options.on_error == "zero":
            self._rows[list(bad)] = 0
        else:
            kept = np.setdiff1d(np.arange(len(self._status)), list(bad))
            tensor = torch.from_numpy(self._rows[kept])  # not by torch: see PlainProducer on forked children
            tensor = tensor.pin_memory() if options.pin_memory else tensor
            labels = None if labels is None else labels[kept]
        return FinishedBatch(self._batch(tensor, labels), len(tensor), self._rows.nbytes, errors)

    def _batch(self, rows: torch.Tensor, labels: NDArray[Any] | None) -> Any:
        """Return what the training loop gets: a list, like torch's default collate."""
        context = self._decoder.context
        # (B, H, W, C) in memory becomes (B, C, H, W) in channels_last: a view, not a copy.
        images = rows.permute(0, 3, 1, 2) if context.dataset.reader.is_picture and not context.is_planar else rows
        if labels is None:
            return images
        collated = collate_labels(context.dataset, labels)
        is_ours = context.options.pin_memory and context.dataset.target_transform is None
        return [images, collated.pin_memory() if is_ours else collated]


def row_shape(shape: NDArray[np.int64] | Shape, *, is_planar: bool) -> Shape:
    """Return the shape of a row in memory for that of a picture or array."""
    height, *others = (int(size) for size in shape)
    return (others[1], height, others[0]) if is_planar else (height, *others)
