"""Makes batches of samples of many fields: all fields of a batch are begun together, on one pool of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.field_values import column_values
from fastio.dataset.record_collate import is_padded, mask_name
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PadCollate
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SampleError, SchemaError
from fastio.loader.device.nested import tensors
from fastio.loader.forks import PerProcess
from fastio.loader.producer.chunks import CheckedSamples, ChunkReader
from fastio.loader.producer.decoding import BatchBuffers, RowDecoder, RowField
from fastio.loader.producer.fields.part import BatchPart, PendingFields, fields_of
from fastio.loader.producer.fields.rows import PendingGeometry, PendingRowFields, RowFields
from fastio.loader.producer.fields.tokens import JoinedTokens, PaddedTokens, TokenField
from fastio.loader.producer.fields.values import PendingRagged, PendingValues, begin_check
from fastio.loader.producer.pillow_threads import PillowCount, PillowThreads
from fastio.loader.producer.producer import (
    FinishedBatch,
    ImpossibleBatch,
    PendingBatch,
    ProducerContext,
    RestartedBatch,
    collate_labels,
    kept_positions,
)
from fastio.loader.producer.tokens import TokenFiller
from fastio.samplers.batches import Batches
from fastio.transforms.joint import GEOMETRY

__all__ = [
    "FieldsProducer",
]


class FieldsProducer:
    """
    Makes batches of all fields of a dataset whose samples are as stored.

    Pictures, masks and raw arrays become rows of one tensor each, as NativeProducer decodes them; token ids and ragged
    arrays are collated by name; text, JSON and bytes become lists. Of a chunk of samples, all fields are looked up and
    fetched together. Memory is pinned for the reason given in NativeProducer.
    """

    reads_samples = False

    def __init__(self, context: ProducerContext) -> None:
        dataset = context.dataset
        self._context = context
        self._rows = _row_fields(context)
        self._columns = {
            name: column_values(dataset.store, name) for name in dataset.form.names if name not in dataset.readers
        }
        self._pillow_count = PillowCount(dataset.store.path)
        self._chunks = ChunkReader(dataset.store, list(dataset.readers))
        self._machinery = PerProcess(partial(_start, context, self._rows, self._pillow_count))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Samples of many fields, or of one that is not paired with its label, as they are stored."""
        return context.fields is not None

    @property
    def pool(self) -> _native.ThreadPool:
        """The threads that decode."""
        return self._machinery.here().pool

    @property
    def threads(self) -> int:
        """The number of threads that start batches now."""
        return self.pool.used

    @property
    def buffer_bytes(self) -> int:
        """Memory of rows and padded tokens, and of copies of what is decoded into them."""
        return self._machinery.here().buffer_bytes + self._chunks.buffer_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Return the bytes of batches in progress, of the loop's and of one in between."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; a batch in progress is finished first."""
        machinery = self._machinery.own
        if machinery is not None:
            machinery.pool.close()
            machinery.pillow.close()
            self._pillow_count.tell()
        self._chunks.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[PendingBatch]:
        """Start one batch per step, while one chunk is read ahead."""
        for chunk in self._chunks.chunks(batches):
            rows = self._rows.look_up(chunk.batches, chunk.values, epoch=epoch)
            spans = {name: values.spans for name, values in chunk.values.items()}
            checked = CheckedSamples.of(chunk.batches.indices, spans, verify=self._context.options.verify)
            for part in chunk.batches.slices():
                yield RestartedBatch(partial(self._begin, BatchPart(chunk, rows, part, epoch, checked)))

    def _begin(self, part: BatchPart) -> PendingBatch:
        try:
            pending = self._machinery.here().begin(part)
        except SchemaError as exc:
            return ImpossibleBatch(exc)  # the error belongs to this batch: those before it are still good
        return FieldsBatch(self._context, part, pending, self._columns)


@dataclass(frozen=True, slots=True)
class _Machinery:
    """Threads and memory of one process, and what they do with each field."""

    context: ProducerContext
    pool: _native.ThreadPool
    pillow: PillowThreads
    pillow_count: PillowCount
    rows: RowFields
    decoders: Mapping[str, RowDecoder]
    tokens: Sequence[TokenField]
    ragged: Sequence[RowReader]
    others: Sequence[RowReader]  # text, JSON, bytes

    @property
    def buffer_bytes(self) -> int:
        """Bytes of batches: in progress, with the training loop, and free."""
        rows = sum(decoder.buffers.allocated_bytes for decoder in self.decoders.values())
        return rows + sum(tokens.filler.allocated_bytes for tokens in self.tokens if tokens.filler is not None)

    def begin(self, part: BatchPart) -> list[PendingFields]:
        """Start all fields of a batch. Raises SchemaError if rows do not fit together."""
        options, fields = self.context.options, fields_of(self.context)
        rows = PendingRowFields(self.rows, part, self.decoders, self.pillow_count)
        pending: list[PendingFields] = [rows]
        if fields.keeps_geometry:
            pending.append(PendingGeometry(rows, len(part), is_pinned=options.pin_memory))
        pending += [tokens.begin(part) for tokens in self.tokens]
        names = [reader.field.name for reader in (*self.ragged, *self.others)]
        if names:
            checked = begin_check(part, names, self.pool, verify=options.verify)
            pending += [PendingValues(reader, part, checked) for reader in self.others]
            if self.ragged:
                is_pinned, collates = options.pin_memory, fields.collates
                pending.append(PendingRagged(self.ragged, collates, part, checked, rows.frames, is_pinned=is_pinned))
        return pending


def _row_fields(context: ProducerContext) -> RowFields:
    """Return the fields that become rows, and what is done with them."""
    options = fields_of(context)
    fields = {}
    for name, reader in context.dataset.readers.items():
        if reader.has_rows:
            fused = options.fused[name]
            is_planar = options.is_planar and fused is not None and reader.is_picture
            fields[name] = RowField(reader, fused, is_planar)
    leader = options.leader if options.is_joint else None
    return RowFields(fields, leader, context.options.pin_memory)


def _start(context: ProducerContext, rows: RowFields, pillow_count: PillowCount) -> _Machinery:
    """Threads and memory for the calling process."""
    options = context.options
    pool, pillow = _native.ThreadPool(options.threads), PillowThreads(options.threads)
    decoders = {
        name: RowDecoder(field, pool, _buffers(context), pillow, options.verify) for name, field in rows.fields.items()
    }
    readers = [reader for reader in context.dataset.readers.values() if not reader.has_rows]
    return _Machinery(
        context,
        pool,
        pillow,
        pillow_count,
        rows,
        decoders,
        tokens=[_token_field(context, reader, pool) for reader in readers if reader.field.traits.is_tokens],
        ragged=[reader for reader in readers if reader.field.traits.is_ragged],
        others=[reader for reader in readers if not (reader.field.traits.is_tokens or reader.field.traits.is_ragged)],
    )


def _token_field(context: ProducerContext, reader: RowReader, pool: _native.ThreadPool) -> TokenField:
    options, tokens = context.options, TokenReader(reader)
    collate = fields_of(context).collates[reader.field.name]
    filler = None
    if isinstance(collate, PadCollate):
        filler = TokenFiller(context, tokens, collate, pool, kept=context.options.depth + 2)
    return TokenField(tokens, collate, pool, filler, options.verify, options.pin_memory)


def _buffers(context: ProducerContext) -> BatchBuffers:
    return BatchBuffers(context.options.depth + 2, is_pinned=context.options.pin_memory)


# A batch of many fields in progress: waits for all of them, deals with bad samples, and puts them together.


class FieldsBatch:
    """The fields of one batch in progress, and the ``columns`` from which those of its samples are picked."""

    __slots__ = ("_collates", "_columns", "_context", "_part", "_pending")

    def __init__(
        self,
        context: ProducerContext,
        part: BatchPart,
        pending: Sequence[PendingFields],
        columns: Mapping[str, NDArray[Any]],
    ) -> None:
        self._context = context
        self._collates = fields_of(context).collates
        self._part = part
        self._pending = pending
        self._columns = columns

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        for pending in self._pending:
            pending.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when all its fields are there."""
        options, indices = self._context.options, self._part.indices
        errors = self._errors()
        kept = kept_positions(errors, len(indices), on_error=options.on_error) if errors else None
        indices = indices if kept is None else indices[kept]
        if len(indices) == 0:
            return FinishedBatch(None, 0, 0, list(errors.values()), proof=self._part.proof)
        values: dict[str, Any] = {}
        for pending in self._pending:
            values |= pending.values(kept)
        for name, column in self._columns.items():
            values[name] = self._column(column, indices)
        batch = self._assembled(values)
        tokens, slots = self._token_counts()
        nbytes, proof = _nbytes(batch), self._part.proof
        return FinishedBatch(batch, len(indices), nbytes, list(errors.values()), tokens, slots, proof=proof)

    def _errors(self) -> dict[int, SampleError]:
        """Wait for all fields, and return one error of each bad sample, by position, ascending."""
        errors: dict[int, SampleError] = {}
        for pending in self._pending:
            for position, error in pending.errors().items():
                errors.setdefault(position, error)
        return dict(sorted(errors.items())) if errors else errors

    def _column(self, column: NDArray[Any], indices: NDArray[np.int64]) -> Any:
        """Return a column of these samples as torch's default collate joins them: a tensor, or a list of text."""
        dataset, chosen = self._context.dataset, column[indices]
        if chosen.dtype.kind in "SU":
            return chosen.tolist()
        collated = collate_labels(dataset, chosen)  # only a pair, whose one column is the label, has a target_transform
        is_ours = self._context.options.pin_memory and dataset.target_transform is None
        return collated.pin_memory() if is_ours else collated

    def _assembled(self, values: Mapping[str, Any]) -> Any:
        """Return what the training loop gets; padded values come with their mask."""
        form, collates = self._context.dataset.form, self._collates
        if form.kind == "pair":
            return list(form.assemble(values))  # like torch's default collate
        if form.kind != "dict":
            parts = form.assemble(values)
            return (*parts, values[GEOMETRY]) if fields_of(self._context).keeps_geometry else parts
        batch: dict[str, Any] = {}
        for name in form.names:
            if is_padded(collates.get(name)):
                batch[name], batch[mask_name(name)] = values[name]
            else:
                batch[name] = values[name]
        if fields_of(self._context).keeps_geometry:
            batch[GEOMETRY] = values[GEOMETRY]
        return batch

    def _token_counts(self) -> tuple[int, int]:
        """Return the tokens in all fields of the batch, and the slots for them."""
        counts = [pending.counts for pending in self._pending if isinstance(pending, (PaddedTokens, JoinedTokens))]
        return sum(tokens for tokens, _ in counts), sum(slots for _, slots in counts)


def _nbytes(batch: Any) -> int:
    """Return the bytes of a batch's tensors."""
    return sum(tensor.nbytes for tensor in tensors(batch) if isinstance(tensor, torch.Tensor))
