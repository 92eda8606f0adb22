"""Makes batches by native jobs: one call per batch, into memory that is recycled when its tensor dies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SchemaError
from fastio.loader.forks import PerProcess
from fastio.loader.producer.chunks import CheckedSamples, ChunkReader, Proof, SampleChunk
from fastio.loader.producer.decoding import (
    BatchBuffers,
    DecodedRows,
    DecodingRows,
    RowChunk,
    RowDecoder,
    RowField,
    RowPart,
)
from fastio.loader.producer.pillow_threads import PillowCount, PillowThreads
from fastio.loader.producer.producer import (
    FinishedBatch,
    ImpossibleBatch,
    ProducerContext,
    RestartedBatch,
    Submitted,
    collate_labels,
    kept_positions,
    tensor_labels,
)
from fastio.samplers.batches import Batches

__all__ = ["NativeProducer"]


class NativeProducer:
    """
    Decodes each batch by one native call into memory that is recycled when its tensor dies.

    With ``pin_memory``, buffers are torch's own pinned memory instead of the ring's: a copy to the device with
    ``non_blocking=True`` still reads a batch after its tensor has died. Only torch's caching host allocator knows
    when that copy is over; the ring would reuse the memory too early.
    """

    reads_samples = False

    def __init__(self, context: ProducerContext) -> None:
        dataset = context.dataset
        self._context = context
        self._pillow_count = PillowCount(dataset.store.path)
        self._field = RowField(dataset.reader, context.fused, context.is_planar)
        self._chunks = ChunkReader(dataset.store, [dataset.reader.field.name])
        self._decoder = PerProcess(partial(_start, context, self._field))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Values that the native core decodes into rows, unchanged."""
        return context.fields is None and context.dataset.is_as_stored and context.dataset.reader.has_rows

    @property
    def pool(self) -> _native.ThreadPool:
        """The threads that decode."""
        return self._decoder.here().pool

    @property
    def threads(self) -> int:
        """The number of threads that start batches now."""
        return self.pool.used

    @property
    def buffer_bytes(self) -> int:
        """Memory of batches, and of copies of what is decoded into them."""
        return self._decoder.here().buffers.allocated_bytes + self._chunks.buffer_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Return the bytes of batches in progress, of the loop's and of one in between."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; a batch in progress is finished first."""
        decoder = self._decoder.own
        if decoder is not None:
            decoder.pool.close()
            decoder.pillow.close()
            self._pillow_count.tell()
        self._chunks.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[Submitted]:
        """Start one batch per step, while one chunk is read ahead."""
        labels, name = self._context.dataset.labels, self._field.reader.field.name
        for chunk in self._chunks.chunks(batches):
            indices = chunk.batches.indices
            values = self._field.look_up(chunk.batches, chunk.values[name], epoch=epoch)
            chosen = None if labels is None else labels[indices]
            checked, first = self._checked(chunk), 0
            group = self._group(values, chosen, checked, is_last=chunk.is_last)
            if group is not None:
                yield from group
                first = group.yielded
            for part in islice(chunk.batches.slices(), first, None):
                is_last = chunk.is_last and part.stop == len(indices)
                # The proof of a group is that of all batches of its chunk: what it has left over adds none.
                proof = checked, (part.start, part.stop) if group is None else (part.stop,)
                yield RestartedBatch(partial(self._begin, values, part, chosen, proof, is_last=is_last))

    def _group(
        self, values: RowChunk, labels: NDArray[Any] | None, checked: CheckedSamples, *, is_last: bool
    ) -> _native.RowBatches | None:
        """Return the batches of a chunk that native code makes alone; None if Python has to make each."""
        given = None if labels is None else tensor_labels(self._context.dataset, labels)
        if labels is not None and given is None:
            return None
        repair = partial(self._repaired, values, labels, checked, is_last)
        proof = checked, values.batches.cuts
        made = self._pillow_count.native
        return self._decoder.here().batches(values, labels=given, made=made, proof=proof, repair=repair)

    def _repaired(
        self, values: RowChunk, labels: NDArray[Any] | None, checked: CheckedSamples, is_last: bool, number: int
    ) -> FinishedBatch:
        """Return a batch of a group that has bad samples, or that another process had begun."""
        part = slice(*values.batches.cuts[number : number + 2].tolist())
        is_last = is_last and part.stop == len(values.batches.indices)
        return self._begin(values, part, labels, (checked, (part.start, part.stop)), is_last=is_last).result()

    def _begin(
        self,
        values: RowChunk,
        part: slice,
        labels: NDArray[Any] | None,
        proof: Proof,
        *,
        is_last: bool,
    ) -> _NativeBatch | ImpossibleBatch:
        try:
            rows = self._decoder.here().begin(RowPart(values, part))
        except SchemaError as exc:
            return ImpossibleBatch(exc)  # the error belongs to this batch: those before it are still good
        batch_labels = None if labels is None else labels[part]
        return _NativeBatch(self._context, self._pillow_count, rows, batch_labels, proof, is_last=is_last)

    def _checked(self, chunk: SampleChunk) -> CheckedSamples:
        """Return the samples of a chunk with the checksums that native threads compare them with."""
        if self._context.compared is not None:
            return CheckedSamples.kept(chunk.batches.indices, self._context.compared)
        name = self._field.reader.field.name
        spans = {name: chunk.values[name].spans}
        return CheckedSamples.of(chunk.batches.indices, spans, verify=self._context.options.verify)


def _start(context: ProducerContext, field: RowField) -> RowDecoder:
    """Threads and memory for the calling process."""
    options = context.options
    buffers = BatchBuffers(options.depth + 2, is_pinned=options.pin_memory)
    pool, pillow = _native.ThreadPool(options.threads), PillowThreads(options.threads)
    return RowDecoder(field, pool, buffers, pillow, options.verify)


class _NativeBatch:
    """Rows in progress and their labels."""

    __slots__ = ("_context", "_is_last", "_labels", "_pillow_count", "_proof", "_rows")

    def __init__(
        self,
        context: ProducerContext,
        pillow_count: PillowCount,
        rows: DecodingRows,
        labels: NDArray[Any] | None,
        proof: Proof,
        *,
        is_last: bool,
    ) -> None:
        self._context = context
        self._pillow_count = pillow_count
        self._rows = rows
        self._labels = labels
        self._proof = proof
        self._is_last = is_last

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        self._rows.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when all its rows are there."""
        rows = self._rows.result()
        count = len(rows.rows)
        self._pillow_count.add(count, rows.kinds, is_last=self._is_last)
        if rows.errors:
            return self._repaired(rows)
        batch = self._batch(rows.tensor, self._labels)
        return FinishedBatch(batch, count, rows.rows.nbytes, proof=self._proof)

    def _repaired(self, rows: DecodedRows) -> FinishedBatch:
        """The batch after the policy for bad samples was applied."""
        options, labels = self._context.options, self._labels
        kept = kept_positions(rows.errors, len(rows.tensor), on_error=options.on_error)
        if kept is None:
            tensor = rows.blanked()
        else:
            tensor = rows.at(kept, is_pinned=options.pin_memory)
            labels = None if labels is None else labels[kept]
        errors, batch = list(rows.errors.values()), self._batch(tensor, labels)
        return FinishedBatch(batch, len(tensor), rows.rows.nbytes, errors, proof=self._proof)

    def _batch(self, rows: torch.Tensor, labels: NDArray[Any] | None) -> Any:
        """Return what the training loop gets: a list, like torch's default collate."""
        context = self._context
        # (B, H, W, C) in memory becomes (B, C, H, W) in channels_last: a view, not a copy.
        images = rows.permute(0, 3, 1, 2) if context.dataset.reader.is_picture and not context.is_planar else rows
        if labels is None:
            return images
        collated = collate_labels(context.dataset, labels)
        is_ours = context.options.pin_memory and context.dataset.target_transform is None
        return [images, collated.pin_memory() if is_ours else collated]
