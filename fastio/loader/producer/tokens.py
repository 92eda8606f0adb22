"""Batches of token ids by native jobs, several batches per job: one batch is too little work for a call."""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.field_values import column_values
from fastio.dataset.record_collate import Rows as Collate
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import (
    IGNORED,
    PadCollate,
    PreferenceCollate,
    TokenCollate,
    WindowCollate,
    beside_fill,
    beside_name,
)
from fastio.dataset.token_reader import TokenReader
from fastio.dataset.token_stream import WindowReader
from fastio.dataset.window_store import Draw, LocatedWindows, Pieces, WindowStore
from fastio.errors import SampleError, StoreError
from fastio.lazy import torch
from fastio.loader.forks import PerProcess
from fastio.loader.output import Output
from fastio.loader.producer.batch_part import BatchPart, collate_lengths
from fastio.loader.producer.chunks import READ_ALONE, CheckedSamples, Upcoming, chunk_parts, look_ahead
from fastio.loader.producer.producer import FinishedBatch, ProducerContext, collate_labels, tensor_labels
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.store.files import Prefetch, StoreFiles
from fastio.store.files.fetch import FetchedFields, fetch_together, joined_spans
from fastio.store.protocol import SampleStore, stretches
from fastio.types.metrics import PictureCounts
from fastio.types.placement import IN_THE_INDEX, NATIVE, Placement, Stage, called
from fastio.types.runs import mask_of_runs
from fastio.types.schema import Field
from fastio.types.spans import Spans, distinct
from fastio.types.split import Split

__all__ = [
    "JOB_BYTES",
    "JoinedTokens",
    "Located",
    "PaddedTokens",
    "PendingRead",
    "PreferenceFields",
    "PreferenceTokens",
    "TokenField",
    "TokenFiller",
    "TokenProducer",
    "TokenSource",
    "beside_misfit",
]


LOOKED_UP_BYTES = 4 << 20  # of stored ids, about: their samples are looked up together
_LOOKED_UP = 1 << 17  # samples, at most about: of rows of a few ids, the first batch would wait for millions
_LOOKED_UP_FIRST = 1 << 12
_LOOKED_UP_FIRST_OF_MANY = 1 << 10  # whose index may not be in memory yet: each takes three reads of the disk then
_FIRST_BATCHES = READ_ALONE  # at least: more than the loop asks for before it waits for one
_MANY = 1 << 20  # of an epoch: there, two look-ups of a size give what is read ahead of the next one as much time
_KEPT = 4  # free buffers: as many as the end of an epoch returns, because new memory costs more than filling it
_IDLE = 2  # about this many, while batches are made
_LOOKED_AT = 64  # batches whose size stands for the others,
_LOOKED_AT_EACH = 4  # and their first samples for theirs


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
    Looks up a few batches at a time; native code lays them out, lets threads fill their buffers, and returns views.

    Batches are looked up when the first one of those before begins; behind the first look-up of an epoch, the last one.

    The buffer comes from a ring, or with ``pin_memory`` from torch's allocator of pinned memory, for the reason given
    in ``NativeProducer``.
    """

    reads_samples = False
    pool = None

    def __init__(self, context: ProducerContext) -> None:
        assert context.collate is not None
        self._context = context
        self._machinery = PerProcess(partial(_start, context))
        self.reads_whole = context.dataset.store.files.in_place

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Token ids as they are stored, in batches of ours."""
        dataset = context.dataset
        is_beside = dataset.parallel is not None and dataset.transform is None and not dataset.makes_samples
        return context.collate is not None and (dataset.is_as_stored or is_beside)

    @property
    def placement(self) -> Placement:
        """Native threads; labels come from the index."""
        context = self._context
        made = Stage(NATIVE, (called(context.collate),))
        readers = context.dataset.readers
        return Placement(
            {name: [made if name in readers else Stage(IN_THE_INDEX)] for name in context.dataset.form.names}
        )

    @property
    def pictures(self) -> PictureCounts:
        """None."""
        return PictureCounts()

    @property
    def threads(self) -> int:
        """As many as there are."""
        return self._context.options.threads

    @property
    def buffer_bytes(self) -> int:
        """Memory of batches, and of copies of the ids in them; 0 in a forked child that has made none."""
        machinery = self._machinery.own
        return 0 if machinery is None else machinery.filler.allocated_bytes + machinery.source.buffer_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """
        Return the bytes of whole jobs: those requested ahead, the next, the loop's, one in between and idle ones; with
        stored ids.

        ``batch_bytes`` does not matter: all batches of a job share its buffer.
        """
        machinery = self._machinery.own
        if machinery is None:
            return 0
        jobs = math.ceil(depth / machinery.filler.job_batches) + 3 + _IDLE
        return jobs * machinery.filler.largest_bytes + machinery.source.buffer_bytes

    def close(self) -> None:
        """Join the threads; a job in progress is finished first."""
        machinery = self._machinery.own
        if machinery is not None:
            machinery.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_native.TokenBatches]:
        """Begin a few batches when those before have begun, while the next ones are read."""
        if len(batches) == 0:
            return
        cuts = [*self.chunk_starts(batches).tolist(), len(batches)]
        chunks = Upcoming(chunk_parts(batches, cuts, holds=self._context.dataset.store.files.holds), self._look_ahead)
        coming: PerProcess[PendingRead] | None = self._coming(next(chunks), epoch)
        is_first = True
        while coming is not None:
            located = coming.here().wait()
            group = self._machinery.here().filler.batches(
                located, verify=self._context.options.verify, repair=partial(self._repaired, located)
            )
            early = len(group) - 1 if is_first else 0
            if is_first:
                chunks.read()  # meanwhile, so that the first batch waits for one look-up
            yield from repeat(group, early)
            is_first = False
            following = next(chunks, None)
            coming = None if following is None else self._coming(following, epoch)
            chunks.read()
            yield from repeat(group, len(group) - early)

    def _repaired(self, located: Located, number: int, status: NDArray[np.int32] | None) -> FinishedBatch:
        """Return a batch with bad samples, or one that another process had begun."""
        return self._machinery.here().filler.repaired(located, number, status)

    def _coming(self, chunk: tuple[Batches, bool], epoch: int) -> PerProcess[PendingRead]:
        batches, is_read = chunk
        return PerProcess(partial(self._look_up, batches, epoch, is_read=is_read))

    def _look_ahead(self, chunk: tuple[Batches, bool]) -> list[Prefetch]:
        """Begin to read what a look-up of these samples needs of the index."""
        return self._machinery.here().source.look_ahead(chunk[0])

    def _look_up(self, batches: Batches, epoch: int, *, is_read: bool) -> PendingRead:
        """Begin to read these samples."""
        draw = Draw(self._context.seed, epoch, batches.ids)
        return self._machinery.here().source.look_up(batches, draw, is_read=is_read)

    def chunk_starts(self, batches: Batches) -> NDArray[np.int64]:
        """
        Return which batches are the first of those that are looked up together: by the tokens of some that are spread
        over the epoch, but few batches at first, since the first one waits for all of these: one, where files are held.
        """
        dataset = self._context.dataset
        assert dataset.ids_reader is not None
        samples, counts, sizes = _spread(replace(batches, windows=None))
        spans = dataset.store.spans(dataset.ids_reader.field.name, samples, checksums=False)
        of_batches = np.add.reduceat(spans.sizes, np.cumsum(counts) - counts) / counts
        stored_bytes = int((of_batches * sizes).sum())
        in_bytes = LOOKED_UP_BYTES * len(sizes) // (stored_bytes + 1)
        most = max(1, min(in_bytes, _LOOKED_UP * len(sizes) // (int(sizes.sum()) + 1)))
        first = _LOOKED_UP_FIRST if batches.count <= _MANY else _LOOKED_UP_FIRST_OF_MANY
        few = 1 if dataset.store.files.holds else max(_FIRST_BATCHES, first * len(batches) // batches.count)
        count, starts = min(few, most), [0]
        while starts[-1] + count < len(batches):
            starts.append(starts[-1] + count)
            if len(starts) % 2 or batches.count <= _MANY:
                count = min(2 * count, most)
        return np.array(starts, np.int64)


def _start(context: ProducerContext) -> _Fillers:
    """Threads and memory for the calling process."""
    options, dataset, tokens = context.options, context.dataset, context.dataset.ids_reader
    assert tokens is not None
    assert context.collate is not None
    beside = () if dataset.parallel is None else dataset.parallel
    names = dataset.form.columns(dataset.store.schema) if dataset.parallel is not None else ()
    columns = {name: column_values(dataset.store, name) for name in names}
    pool = _native.ThreadPool(options.threads)
    filler = TokenFiller(context, tokens, context.collate, pool, kept=_KEPT, beside=beside, columns=columns)
    every = (tokens.field.name, *(reader.field.name for reader in beside))
    checksums = options.verify or dataset.store.files.holds
    return _Fillers(filler, TokenSource(dataset, every, checksums=checksums, split=context.split))


def _spread(batches: Batches) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return samples of a few batches spread over the whole epoch, how many of each, and the batches' sizes."""
    numbers = distinct(np.linspace(0, len(batches) - 1, _LOOKED_AT).astype(np.int64))
    starts, sizes = batches.cuts[numbers], batches.cuts[numbers + 1] - batches.cuts[numbers]
    counts = np.minimum(sizes, _LOOKED_AT_EACH)
    chosen = [
        batches.samples(start, start + count) for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    return np.concatenate(chosen), counts, sizes


# Batches of token ids by native jobs: what is asked of them, and what becomes of those with bad samples.

JOB_BYTES = 1 << 20  # of batches that one job fills: they share a buffer, which lives as long as any of them
Repair = Callable[[int, NDArray[np.int32] | None], FinishedBatch]


class TokenFiller:
    """Makes batches of ids on the threads of ``pool``; ``kept`` free buffers are held. It belongs to one process."""

    def __init__(
        self,
        context: ProducerContext,
        tokens: TokenReader,
        collate: TokenCollate,
        pool: _native.ThreadPool,
        *,
        kept: int,
        beside: Sequence[RowReader] = (),
        columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self._context = context
        self._beside = tuple(beside)
        self._columns = columns or {}
        self._labels = context.dataset.labels if collate.has_labels and not beside else None
        self._kept = kept
        self._ring = None if context.options.output.is_pinned else _native.BufferRing(kept)
        self.tokens = tokens
        self.collate = collate
        self.pool = pool
        self._native = _native.TokenFiller(
            collate.layout,
            collate.width,
            rows=collate.rows or 0,
            longest=collate.longest or 0,
            pad_id=collate.pad_id,
            at_end=collate.pads_before,
            item_bytes=tokens.item_bytes,
            vocabulary=tokens.vocabulary,
            beside=[_beside_words(reader.field) for reader in beside],
            pool=pool,
            ring=self._ring,
            from_dlpack=context.options.output.from_dlpack,
            pinned=_PinnedMemory() if self._ring is None else None,
            documents=isinstance(collate, WindowCollate) and collate.documents,
        )

    def batches(self, located: Located, *, verify: bool, repair: Repair | None = None) -> _native.TokenBatches:
        """Return these batches, of which none has begun yet; ``repair`` makes those with bad samples."""
        batches, spans, pieces = located.batches, located.spans, located.pieces
        return self._native.batches(
            spans,
            np.ascontiguousarray(batches.cuts),
            verify=verify,
            beside=located.beside,
            **self._labels_of(batches),
            unread=located.unread,
            job_bytes=JOB_BYTES,
            proof=(self.checked(located), batches.cuts),
            repair=repair,
            pieces=None if pieces is None else (pieces.cuts, pieces.starts, pieces.sizes, pieces.origins),
        )

    def _labels_of(self, batches: Batches) -> dict[str, Any]:
        """Return the labels of samples, or what makes those of a batch, and other columns of it."""
        if self._columns and self.collate.has_labels:
            columns = {name: column[batches.indices] for name, column in self._columns.items()}
            return {"columns_of": partial(_some_columns, self._context, columns)}
        if self._labels is None:
            return {}
        labels = self._labels[batches.indices]
        known = tensor_labels(self._context.dataset, labels)
        return {"label_of": partial(_some_labels, self._context, labels)} if known is None else {"labels": known}

    def repaired(self, located: Located, number: int, status: NDArray[np.int32] | None) -> FinishedBatch:
        """
        Return batch ``number`` after applying the policy for bad samples: left out, or without tokens. Without
        ``status``, another process had begun it.
        """
        one = located.part(number)
        if status is None:
            again = self.batches(one, verify=self._context.options.verify)
            status = again.status(0)
            if not status.any():
                return _finished(again, [])
        errors = list(self._errors(one, status).values())
        if self._context.options.on_error == "raise":
            raise errors[0]
        is_good = status == _native.OK
        if self._context.options.on_error == "skip":
            if not is_good.any():
                return FinishedBatch(None, 0, 0, errors)
            good = one.at(np.flatnonzero(is_good))
        else:
            good = one.emptied(is_good)
        filled = self.batches(good, verify=False)  # the remaining ones were compared
        filled.status(0)
        return _finished(filled, errors)

    def _errors(self, located: Located, status: NDArray[np.int32]) -> dict[int, SampleError]:
        """Return what is wrong with the samples whose status is not OK, by position."""
        indices = located.batches.indices
        if located.windows is not None:
            assert isinstance(self.tokens, WindowReader)
            return {
                position: self.tokens.problem(
                    int(indices[position]),
                    located.windows,
                    located.spans,
                    located.unread,
                    position,
                    int(status[position]),
                )
                for position in np.flatnonzero(status).tolist()
            }
        errors = self.tokens.errors(indices, located.spans, np.where(status == _native.FAILED, _native.OK, status))
        for position in np.flatnonzero(status == _native.FAILED).tolist():
            length = int(self.tokens.lengths(located.spans)[position])
            words = (
                (reader, spans, _beside_problem(reader.field, spans, position, length))
                for reader, spans in zip(self._beside, located.beside, strict=True)
            )
            reader, spans, problem = next(each for each in words if each[2])
            errors[position] = reader.error(indices, spans, position, problem)
        return dict(sorted(errors.items()))

    def checked(self, located: Located) -> CheckedSamples:
        """Return samples with the checksums that they are compared with."""
        if located.windows is not None:  # whose checksums are those of what they are parts of
            return CheckedSamples(located.batches.indices, None)
        spans = {self.tokens.field.name: located.spans}
        spans |= {reader.field.name: of for reader, of in zip(self._beside, located.beside, strict=True)}
        return CheckedSamples.of(located.batches.indices, spans, verify=self._context.options.verify)

    @property
    def largest_bytes(self) -> int:
        """The largest buffer so far."""
        return self._native.largest_bytes

    @property
    def job_batches(self) -> float:
        """The mean number of batches that one job has filled so far."""
        return self._native.job_batches

    @property
    def allocated_bytes(self) -> int:
        """Bytes lent and free. Pinned memory is torch's to count: here it is as many of the largest as are kept."""
        return self._kept * self.largest_bytes if self._ring is None else self._ring.allocated_bytes


class _PinnedMemory:
    """Memory of torch's own allocator, which has to recognise its tensors again after a copy: see BatchBuffers."""

    def take(self, size_bytes: int) -> torch.Tensor:
        """Return uninitialised memory."""
        return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def view(self, memory: torch.Tensor, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a part of it, from byte ``start`` on."""
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return memory[start : start + size].view(kind).view(tuple(shape))


def _beside_words(field: Field) -> tuple[str, str, str, bytes]:
    """Return what ``_native.TokenFiller`` is told of a field beside the ids."""
    dtype, name = np.dtype(field.dtype), beside_name(field)
    if field.is_loss:
        return name, "loss", "i4", np.int64(IGNORED).tobytes()
    kind = "widen" if field.traits.is_tokens else "copy"
    slot = np.dtype(np.int64) if kind == "widen" else dtype
    return name, kind, f"{dtype.kind}{dtype.itemsize}", np.array(beside_fill(name), slot).tobytes()


def _beside_problem(field: Field, values: Spans, position: int, length: int) -> str:
    """Return what is wrong with what a sample of so many ids has beside them; "" if nothing is."""
    data = values.view(position).tobytes()
    if values.checksums is not None and zlib.crc32(data) != int(values.checksums[position]):
        return describe_status(_native.BAD_CHECKSUM)
    return beside_misfit(field, data, length)


def beside_misfit(field: Field, data: bytes, length: int) -> str:
    """Return why these bytes of a field are no values for a sample of so many ids; "" if they are."""
    if not field.is_loss:
        count, rest = divmod(len(data), np.dtype(field.dtype).itemsize)
        if not rest and count == length:
            return ""
        found = f"{len(data)} bytes are no whole values" if rest else f"{count} values, for a sample of {length} ids"
        return f"{found}: pack again"
    if len(data) % 4:
        return f"{len(data)} bytes are no whole numbers of 4 bytes: pack again"
    try:
        mask_of_runs(np.frombuffer(data, "<i4"), length)
    except ValueError as exc:
        return f"{exc}: pack again"
    return ""


def _emptied(spans: Spans, is_good: NDArray[np.bool_]) -> Spans:
    """Return the spans, of which the bad ones are empty."""
    return replace(spans, sizes=np.where(is_good, spans.sizes, 0))


def _finished(one: _native.TokenBatches, errors: Sequence[SampleError]) -> FinishedBatch:
    batch, samples, nbytes, tokens, slots = one.take(0)
    return FinishedBatch(batch, samples, nbytes, errors, tokens, slots)


def _some_columns(context: ProducerContext, columns: Mapping[str, NDArray[Any]], start: int, stop: int) -> Any:
    """Return the columns of one batch by name, as torch's default collate joins them."""
    collated, output = {}, context.options.output
    for name, column in columns.items():
        values = column[start:stop]
        collated[name] = values.tolist() if values.dtype.kind in "SU" else output.pinned(output.joined(list(values)))
    return collated


def _some_labels(context: ProducerContext, labels: NDArray[Any], start: int, stop: int) -> Any:
    """Return the labels of one batch."""
    output = context.options.output
    return output.pinned(collate_labels(context.dataset, labels[start:stop], output))


# Reads stored token ids ahead of the jobs that widen them: into the page cache, or by pread into our own memory.

# Bytes requested from the kernel per call when a whole store is read ahead.
_READ_AHEAD_BYTES = 64 << 20
_MOST_PARTS = 2  # of those, on their way at once
_MOST_SPREAD = 2  # times the bytes of values, with what lies between them


@dataclass(frozen=True, slots=True)
class Located:
    """
    Samples of some batches in readable memory, with what lies beside their ids, by field; ``unread`` is the status of
    each span, if some could not be read. ``windows`` says which part of a stream samples are, if they are, and
    ``parts`` which part of their span.
    """

    batches: Batches
    spans: Spans
    unread: NDArray[np.int32] | None = None
    beside: tuple[Spans, ...] = ()
    windows: LocatedWindows | None = None
    parts: Pieces | None = None

    @property
    def pieces(self) -> Pieces | None:
        """What of the spans samples consist of; None: each of a whole one."""
        return self.parts if self.windows is None else self.windows.pieces

    def part(self, number: int) -> Located:
        """Return one of the batches."""
        return self._chosen(np.arange(*self.batches.cuts[number : number + 2].tolist(), dtype=np.int64))

    def at(self, kept: NDArray[np.int64]) -> Located:
        """Return these samples of one batch."""
        return replace(self._chosen(kept), unread=None)

    def _chosen(self, samples: NDArray[np.int64]) -> Located:
        """Return some samples, as one batch."""
        batches = Batches(self.batches.indices[samples], np.array([0, len(samples)]))
        spans, windows = samples, self.windows
        if windows is not None:
            windows, spans = windows.at(samples)
        unread = None if self.unread is None else self.unread[spans]
        beside = tuple(each.at(samples) for each in self.beside)
        parts = None if self.parts is None else self.parts.at(samples)[0]
        return Located(batches, self.spans.at(spans), unread, beside, windows, parts)

    def emptied(self, is_good: NDArray[np.bool_]) -> Located:
        """Return the samples of one batch, of which the bad ones have no ids."""
        beside = tuple(_emptied(each, is_good) for each in self.beside)
        if self.windows is None or self.windows.pieces is None:
            parts = self.parts
            if parts is not None:
                parts = replace(parts, starts=parts.starts * is_good, sizes=parts.sizes * is_good)
            return replace(self, spans=_emptied(self.spans, is_good), unread=None, beside=beside, parts=parts)
        return replace(self, unread=None, windows=self.windows.emptied(is_good))


@dataclass(frozen=True, slots=True)
class PendingRead:
    """The samples of some batches on their way into memory."""

    batches: Batches
    fetched: FetchedFields
    names: tuple[str, ...]  # of the ids, and of what lies beside them
    windows: LocatedWindows | None = None
    parts: Pieces | None = None

    def wait(self) -> Located:
        """Wait for the samples, and return where they are."""
        arrived = self.fetched.wait()
        (spans, unread), *others = (arrived[name] for name in self.names)
        for _, other in others:
            if other is not None:
                unread = other if unread is None else np.where(unread == _native.OK, other, unread)
        return Located(self.batches, spans, unread, tuple(beside for beside, _ in others), self.windows, self.parts)


class TokenSource:
    """
    Looks up the samples of batches, and reads them in threads of its own.

    Samples lie anywhere in the file, because batches have similar lengths. For a mapped store, the kernel is asked to
    read all of it, or if that is more than half of the available memory, the samples of each look-up: page faults would
    wait for each of them. Of a large store the first look-up has the disk for itself, and the whole comes behind it,
    part by part; until all is asked for, so are the samples of each look-up.

    ``checksums``: samples come with those to compare them with, now or as they arrive from an object store. ``split``
    says which parts of samples come, if not whole ones.
    """

    def __init__(
        self, dataset: FastDataset, names: tuple[str, ...], *, checksums: bool, split: Split | None = None
    ) -> None:
        self._checksums = checksums
        self._split, self._tokens = split, dataset.ids_reader
        self._store = dataset.store
        self._names = names
        self._pool = _native.ThreadPool(self._store.files.threads)
        self._index_pool = _native.ThreadPool(1)  # not behind all that the other one has to read
        self._staging = _native.BufferRing(3)  # being read, being widened, with the loop (if samples are bad)
        self._whole = _whole_of(self._store, names) if self._store.files.in_place else None
        self._has_looked_up = False
        if self._whole is not None and self._whole.is_small:
            self._whole.read_on()

    @property
    def buffer_bytes(self) -> int:
        """The bytes of ids as stored."""
        return self._staging.allocated_bytes

    def look_up(self, batches: Batches, draw: Draw, *, is_read: bool) -> PendingRead:
        """
        Begin to read these samples; ``is_read`` means that the page cache has them, or that something else reads
        them. ``draw`` says where windows begin.
        """
        windows = None
        if isinstance(self._store, WindowStore):
            windows = self._store.locate(batches.indices, draw, verify=self._checksums)
            wanted = dict.fromkeys(self._names, windows.spans)
        else:
            wanted = {name: self._store.spans(name, batches.indices, checksums=self._checksums) for name in self._names}
        is_near = is_read or (self._whole is not None and self._whole.is_read)
        fetched = fetch_together(self._store.files, wanted, pool=self._pool, ring=self._staging, is_near=is_near)
        if self._whole is not None and self._has_looked_up:
            with suppress(StoreError):  # of a damaged index, which the look-up of these samples raises in its turn
                self._whole.read_on()
        self._has_looked_up = True
        parts = None if batches.parts is None else self._parts(batches.parts, wanted[self._names[0]])
        return PendingRead(batches, fetched, self._names, windows, parts)

    def look_ahead(self, batches: Batches) -> list[Prefetch]:
        """Begin to read what ``look_up`` of these samples needs of the index."""
        samples = dict.fromkeys(self._names, batches.indices)
        return look_ahead(self._store, samples, self._index_pool, checksums=self._checksums)

    def _parts(self, numbers: NDArray[np.int64], spans: Spans) -> Pieces:
        """Return these parts of samples, as bytes of their spans; each is a document of its own."""
        assert self._split is not None
        assert self._tokens is not None
        firsts, tokens = self._split.bounds(self._tokens.lengths(spans), numbers)
        item_bytes = self._tokens.item_bytes
        return Pieces(np.arange(len(numbers) + 1), firsts * item_bytes, tokens * item_bytes, np.zeros_like(firsts))

    def close(self) -> None:
        """Stop the threads; what was not yet requested from the kernel is dropped."""
        if self._whole is not None:
            self._whole.close()
        self._pool.close()
        self._index_pool.close()


class _WholeStore:
    """
    A mapped store that the kernel is asked to read from first to last, in these ``parts``: one or two on their way
    whenever somebody calls ``read_on``, of ``nbytes`` in all.
    """

    def __init__(self, files: StoreFiles, parts: Iterator[Spans], nbytes: int) -> None:
        self.is_small = nbytes <= _READ_AHEAD_BYTES
        self.is_read = False
        self._files, self._left = files, parts
        self._pool = _native.ThreadPool(1)  # which waits for the disk
        self._jobs: list[Prefetch] = []
        self._reading = threading.Lock()  # two threads may use two iterators of a loader

    def read_on(self) -> None:
        """Begin to read more; of a small store, all."""
        if self.is_read or not self._reading.acquire(blocking=False):
            return
        try:
            self._jobs = [job for job in self._jobs if not job.done]
            while self.is_small or len(self._jobs) < _MOST_PARTS:
                part = next(self._left, None)
                if part is None:
                    self.is_read = self.is_small or not self._jobs
                    break
                self._jobs.append(self._files.read_ahead(part, pool=self._pool))
        finally:
            self._reading.release()

    def close(self) -> None:
        """Join the thread; what was not yet requested from the kernel is dropped."""
        for job in self._jobs:
            job.cancel()
        self._pool.close()


def _whole_of(store: SampleStore, names: Sequence[str]) -> _WholeStore | None:
    """Return all samples of a store; None if memory may not hold them."""
    parts: Iterator[Spans]
    if isinstance(store, WindowStore):
        whole = store.whole_spans(most=_READ_AHEAD_BYTES)
        nbytes = int(whole.sizes.sum())
        parts = (whole.part(at, at + 1) for at in range(len(whole)))
    else:
        nbytes = sum(store.total_bytes(name) for name in names)
        step = max(1, len(store) * _READ_AHEAD_BYTES // max(1, nbytes))
        most = _MOST_SPREAD * _READ_AHEAD_BYTES
        parts = (
            part
            for name in names
            for at in range(0, len(store), step)
            for part in stretches(store, name, at, min(at + step, len(store)), most=most)
        )
    return None if nbytes > available_memory() // 2 else _WholeStore(store.files, parts, nbytes)


# A field of token ids beside others: widened by one job, into padded rows or one sample after the other.


@dataclass(frozen=True, slots=True)
class TokenField:
    """Makes a field of token ids in the memory and on the threads of one process; ``filler`` is for padded rows."""

    tokens: TokenReader
    collate: Collate
    pool: _native.ThreadPool
    filler: TokenFiller | None
    verify: bool
    output: Output

    def begin(self, part: BatchPart) -> PaddedTokens | JoinedTokens:
        """Start the ids of a batch."""
        return JoinedTokens(self, part) if self.filler is None else PaddedTokens(self.filler, part, verify=self.verify)


class PaddedTokens:
    """Token ids on their way into rows of one length; see PendingFields."""

    def __init__(self, filler: TokenFiller, part: BatchPart, *, verify: bool) -> None:
        self._filler = filler
        self._indices = part.indices
        self._encoded = part.encoded(filler.tokens.field.name)
        self._status = np.empty(0, np.int32)
        self._filling = self._fill(self._encoded.spans, verify=verify)
        self.counts = 0, 0  # tokens of the batch, and its slots for them

    def _fill(self, spans: Spans, *, verify: bool) -> _native.TokenBatches:
        one = Batches(np.zeros(len(spans), np.int64), np.array([0, len(spans)]))
        filling = self._filler.batches(Located(one, spans), verify=verify)
        filling.begin(0)
        return filling

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        self._status = _status(self._filling.status(0), self._encoded.unread)
        return self._filler.tokens.errors(self._indices, self._encoded.spans, self._status)

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        if kept is not None or self._status.any():
            self._filling = self._fill(_good(self._encoded.spans, self._status, kept), verify=False)
            self._filling.status(0)
        batch, _, _, tokens, slots = self._filling.take(0)
        self.counts = tokens, slots
        return {self._filler.tokens.field.name: (batch["input_ids"], batch["attention_mask"])}

    def cancel(self) -> None:
        """See PendingFields."""
        self._filling.cancel()


class JoinedTokens:
    """Token ids on their way into one array, one sample after the other; see PendingFields."""

    def __init__(self, field: TokenField, part: BatchPart) -> None:
        self._field = field
        self._indices = part.indices
        self._encoded = part.encoded(field.tokens.field.name)
        self._status = np.empty(len(part), np.int32)
        self._lengths = field.tokens.lengths(self._encoded.spans)
        self._ids, self._job = self._fill(self._encoded.spans, self._status, verify=field.verify)

    def _fill(self, spans: Spans, status: NDArray[np.int32], *, verify: bool) -> tuple[NDArray[np.int64], _native.Job]:
        tokens = self._field.tokens
        slots = np.zeros(len(spans) + 1, np.int64)
        np.cumsum(tokens.lengths(spans), out=slots[1:])
        ids = np.empty(int(slots[-1]), np.int64)
        job = _native.fill_tokens(
            spans,
            slots,
            ids,
            status,
            self._field.pool,
            verify=verify,
            item_bytes=tokens.item_bytes,
            vocabulary=tokens.vocabulary,
        )
        return ids, job

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        self._job.wait()
        self._status = _status(self._status, self._encoded.unread)
        return self._field.tokens.errors(self._indices, self._encoded.spans, self._status)

    def of_samples(self) -> list[NDArray[np.int64]]:
        """Return the ids of each sample, once ``errors`` has waited for them; bad ones have any."""
        return np.split(self._ids, self._lengths.cumsum()[:-1])

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        field = self._field
        if kept is not None or self._status.any():
            spans = _good(self._encoded.spans, self._status, kept)
            self._lengths = field.tokens.lengths(spans)
            self._ids, job = self._fill(spans, np.empty(len(spans), np.int32), verify=False)
            job.wait()
        assert not isinstance(field.collate, (PadCollate, PreferenceCollate))
        batch = collate_lengths(self._ids, self._lengths, field.collate, field.output)
        return {field.tokens.field.name: batch}

    @property
    def counts(self) -> tuple[int, int]:
        """The tokens of the batch; none of its slots is empty."""
        total = int(self._lengths.sum())
        return total, total

    def cancel(self) -> None:
        """See PendingFields."""
        self._job.cancel()


# Prompts and answers together: each row of a batch has a prompt and one of the answers to it.


@dataclass(frozen=True, slots=True)
class PreferenceFields:
    """Makes rows of prompts and answers on the threads of one process: ``tokens`` has the prompt and the answers."""

    tokens: Mapping[str, TokenReader]
    collate: PreferenceCollate
    pool: _native.ThreadPool
    verify: bool
    output: Output


class PreferenceTokens:
    """
    Prompts and answers on their way into rows: see PendingFields.

    A row is two slots, the first as long as its prompt. Rows of all first answers come before those of the second.
    """

    def __init__(self, fields: PreferenceFields, part: BatchPart) -> None:
        self._fields = fields
        self._indices = part.indices
        self._names = ["prompt", *(name for name in fields.tokens if name != "prompt")]
        self._reader = fields.tokens["prompt"]
        self._encoded = {name: part.encoded(name) for name in self._names}
        self._errors: dict[int, SampleError] = {}
        self._rows = self._begin([self._encoded[name].spans for name in self._names], verify=fields.verify)

    def _begin(self, fields: Sequence[Spans], *, verify: bool) -> _PreferenceRows:
        """Start rows of these prompts and answers."""
        count, answers = len(fields[0]), len(fields) - 1
        places = np.empty((answers, count, 2), np.int64)
        places[:, :, 0] = np.arange(count)
        places[:, :, 1] = np.arange(answers)[:, None] * count + count + np.arange(count)
        spans = joined_spans(list(fields)).at(places.reshape(-1))
        lengths = self._reader.lengths(spans).reshape(-1, 2)
        ends, multiple = lengths.sum(1), self._fields.collate.width
        width = -(-int(ends.max(initial=0)) // multiple) * multiple
        slots = np.empty(2 * len(ends) + 1, np.int64)
        slots[::2] = np.arange(len(ends) + 1) * width
        slots[1::2] = slots[:-1:2] + lengths[:, 0]
        ids, status = np.empty((len(ends), width), np.int64), np.empty(len(spans), np.int32)
        mask = np.empty((len(ends), width), np.uint8)
        job = _native.fill_tokens(
            spans,
            slots,
            ids.reshape(-1),
            status,
            self._fields.pool,
            verify=verify,
            mask=mask.reshape(-1),
            item_bytes=self._reader.item_bytes,
            pad_id=self._fields.collate.pad_id,
            vocabulary=self._reader.vocabulary,
        )
        return _PreferenceRows(ids, mask.view(np.bool_), lengths, status.reshape(answers, count, 2), job)

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        self._rows.job.wait()
        status = self._rows.status
        each = [status[:, :, 0].max(0), *status[:, :, 1]]
        for name, of in zip(self._names, each, strict=True):
            encoded = self._encoded[name]
            of_field = _status(np.ascontiguousarray(of), encoded.unread)
            found = self._fields.tokens[name].errors(self._indices, encoded.spans, of_field)
            self._errors = found | self._errors
        return self._errors

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields. A sample of which a part is bad is blank as a whole."""
        if kept is not None or self._errors:
            status = np.zeros(len(self._indices), np.int32)
            status[[*self._errors]] = _native.FAILED
            fields = [_good(self._encoded[name].spans, status, kept) for name in self._names]
            self._rows = self._begin(fields, verify=False)
            self._rows.job.wait()
        rows = self._rows
        is_answer = rows.mask & (np.arange(rows.mask.shape[1]) >= rows.lengths[:, :1])
        made = {"input_ids": rows.ids, "attention_mask": rows.mask, "completion_mask": is_answer}
        return {"prompt": {name: self._fields.output.of(array) for name, array in made.items()}}

    @property
    def counts(self) -> tuple[int, int]:
        """The tokens of the batch, and its slots for them."""
        return int(self._rows.lengths.sum()), self._rows.ids.size

    def cancel(self) -> None:
        """See PendingFields."""
        self._rows.job.cancel()


@dataclass(frozen=True, slots=True)
class _PreferenceRows:
    """
    Rows in progress: ``ids`` and ``mask`` (R, L), ``lengths`` (R, 2) of prompt and answer, ``status`` (answers, B, 2).
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    status: NDArray[np.int32]
    job: _native.Job


def _status(status: NDArray[np.int32], unread: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Return the status of each value, also of those that could not be read."""
    return status if unread is None else np.where(unread == _native.OK, status, unread)


def _good(spans: Spans, status: NDArray[np.int32], kept: NDArray[np.int64] | None) -> Spans:
    """Return the spans at these positions, or all (None), of which the bad ones are empty."""
    if kept is not None:
        return spans.at(kept)
    return replace(spans, sizes=np.where(status == _native.OK, spans.sizes, 0))
