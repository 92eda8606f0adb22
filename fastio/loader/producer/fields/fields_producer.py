"""Makes batches of samples of many fields: all fields of a batch are begun together, on one pool of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastio import _native
from fastio.dataset.column_values import column_values
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PadCollate
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SchemaError
from fastio.loader.forks import PerProcess
from fastio.loader.producer.buffers import BatchBuffers
from fastio.loader.producer.checked import CheckedSamples
from fastio.loader.producer.chunks import ChunkReader
from fastio.loader.producer.decoding import RowDecoder, RowField
from fastio.loader.producer.fields.fields_batch import FieldsBatch
from fastio.loader.producer.fields.geometry import PendingGeometry
from fastio.loader.producer.fields.part import BatchPart, PendingFields, fields_of
from fastio.loader.producer.fields.ragged import PendingRagged
from fastio.loader.producer.fields.rows import PendingRowFields, RowFields
from fastio.loader.producer.fields.tokens import TokenField
from fastio.loader.producer.fields.values import PendingValues, begin_check
from fastio.loader.producer.pillow_threads import PillowCount, PillowThreads
from fastio.loader.producer.producer import ImpossibleBatch, PendingBatch, ProducerContext, RestartedBatch
from fastio.loader.producer.token_filling import TokenFiller
from fastio.samplers.batches import Batches

__all__ = ["FieldsProducer"]


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
