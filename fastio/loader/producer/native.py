"""Makes batches of one field or many, by native jobs that begin together on one pool of threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.field_values import column_values
from fastio.dataset.form import LABEL
from fastio.dataset.record_collate import is_padded, mask_name
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PadCollate, PreferenceCollate
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SampleError, SchemaError
from fastio.loader.batch_steps import Numbered
from fastio.loader.forks import PerProcess
from fastio.loader.output import nbytes_of
from fastio.loader.producer.batch_part import BatchPart, PendingFields
from fastio.loader.producer.chunks import CheckedSamples, ChunkReader, SampleChunk
from fastio.loader.producer.decoding import BatchBuffers, RowDecoder, RowField, pinned_memory
from fastio.loader.producer.lists import ElementFields, PendingElements, PendingLists, PendingPicked
from fastio.loader.producer.pillow_threads import PillowCount, PillowThreads
from fastio.loader.producer.producer import (
    FinishedBatch,
    ImpossibleBatch,
    PendingBatch,
    ProducerContext,
    RestartedBatch,
    Submitted,
    collate_labels,
    failures,
    kept_positions,
    tensor_labels,
)
from fastio.loader.producer.rows import PendingAdded, PendingRowFields, RowFields
from fastio.loader.producer.tokens import (
    JoinedTokens,
    PaddedTokens,
    PreferenceFields,
    PreferenceTokens,
    TokenField,
    TokenFiller,
)
from fastio.loader.producer.values import PendingArrays, PendingRagged, PendingValues, begin_check
from fastio.loader.producer.vision import PendingText, Pictures, VisionText
from fastio.samplers.batches import Batches
from fastio.store.index.seal import counts_name
from fastio.transforms.batch.functions import FailedSamplesError
from fastio.transforms.pick import Pick
from fastio.types.metrics import PictureCounts
from fastio.types.placement import IN_THE_INDEX, NATIVE, Placement, Stage, called, steps_of
from fastio.types.traits import Traits

__all__ = ["NativeProducer"]

_BY_NUMPY = "NumPy in the loop's thread"
_BY_PYTHON = "Python in the loop's thread"
_CONTAINERS = {"value": "value", "pair": "list", "tuple": "tuple", "dict": "dict"}  # a pair: like torch's collate


class NativeProducer:
    """
    Makes batches of all fields of a dataset whose samples are as stored, be it one or many.

    Pictures, masks and raw arrays become rows of one tensor each; token ids and ragged arrays are collated by name;
    text, JSON and bytes become lists. Of a chunk of samples, all fields are looked up and fetched together. Where they
    are rows and columns, native code makes the chunk's batches, without Python for each.

    Memory is recycled when its tensor dies. With ``pin_memory``, it is torch's own pinned memory instead of a ring's:
    a copy to the device with ``non_blocking=True`` still reads a batch after its tensor has died. Only torch's caching
    host allocator knows when that copy is over; the ring would reuse the memory too early.
    """

    reads_samples = False
    reads_whole = False

    def __init__(self, context: ProducerContext) -> None:
        self._context = context
        dataset = context.dataset
        self._rows, self._elements = _row_fields(context)
        self._pillow_count = PillowCount(dataset.store.path)
        self._picked = {name: pick for pick in context.picks for name in pick.fields}
        self._chunks = ChunkReader(dataset.store, list(dataset.readers), picks=context.picks, seed=context.seed)
        self._columns = _columns(context)
        self._machinery = PerProcess(
            partial(_start, context, self._rows, self._elements, self._columns, self._pillow_count)
        )

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Samples as they are stored; token ids alone only where no other producer takes them."""
        return context.fields is not None or (context.dataset.is_as_stored and context.dataset.reader.has_rows)

    @property
    def placement(self) -> Placement:
        """Native threads for rows and token ids; what Python makes of the others, it makes as the loop waits."""
        context = self._context
        placed = {name: _stages(context, self._rows, self._elements, name) for name in context.dataset.form.names}
        placed |= {name: [Stage(_BY_NUMPY)] for name in context.field_options.adds}
        return Placement(placed)

    @property
    def pictures(self) -> PictureCounts:
        """As Producer.pictures."""
        return self._pillow_count.counts

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

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[Submitted]:
        """Start one batch per step, while one chunk is read ahead."""
        self._pillow_count.tell()  # of an epoch before this one
        for chunk in self._chunks.chunks(batches, epoch=epoch):
            rows = self._rows.look_up(chunk.batches, chunk.values, epoch=epoch)
            elements = self._elements.look_up(chunk, rows, epoch=epoch)
            checked, first = self._checked(chunk), 0
            every = slice(0, len(chunk.batches.indices))
            whole = BatchPart(chunk, rows, every, epoch, checked, elements=elements)
            group = self._group(whole)
            if group is not None:
                yield from group
                first = group.yielded
            for part in islice(chunk.batches.slices(), first, None):
                # The proof of a group is that of all batches of its chunk: what it has left over adds none.
                yield RestartedBatch(partial(self._begin, whole.at(part, is_proved=group is not None)))

    def _group(self, whole: BatchPart) -> _native.RowBatches | None:
        """Return the batches of a chunk that native code makes alone; None if Python has to make each."""
        return self._machinery.here().batches(whole, repair=partial(self._repaired, whole))

    def _repaired(self, whole: BatchPart, number: int) -> FinishedBatch:
        """Return a batch of a group that has bad samples, or that another process had begun."""
        part = slice(*whole.chunk.batches.cuts[number : number + 2].tolist())
        return self._begin(whole.at(part)).result()

    def _begin(self, part: BatchPart) -> PendingBatch:
        try:
            pending = self._machinery.here().begin(part)
        except SchemaError as exc:
            return ImpossibleBatch(exc)  # the error belongs to this batch: those before it are still good
        return _FieldsBatch(self._context, part, pending, self._columns)

    def _checked(self, chunk: SampleChunk) -> CheckedSamples:
        """Return the samples of a chunk with the checksums that native threads compare them with."""
        if self._context.compared is not None:
            return CheckedSamples.kept(chunk.batches.indices, self._context.compared)
        proved = [name for name in chunk.values if name not in self._picked]
        spans = {name: chunk.values[name].spans for name in proved}
        firsts = {name: elements.firsts for name, elements in chunk.lists.items() if name in proved}
        return CheckedSamples.of(chunk.batches.indices, spans, verify=self._context.options.verify, firsts=firsts)


def _row_fields(context: ProducerContext) -> tuple[RowFields, ElementFields]:
    """Return the fields that become rows, and what is done with them; and those of lists whose elements do."""
    options = context.field_options
    fields = {}
    for name, reader in context.dataset.readers.items():
        if reader.has_rows:
            fused = options.fused[name]
            patches = options.patches if reader.is_picture else None
            is_planar = options.is_planar and fused is not None and reader.is_picture and patches is None
            is_list = reader.is_picture and options.views is not None and options.views.is_list
            others, most = options.others.get(name, ()), options.most_patches
            fraction = name in options.by_fraction
            fields[name] = RowField(reader, fused, is_planar, others, is_list, patches, most, by_fraction=fraction)
    elements = {name: fields.pop(name) for name in context.dataset.lists if name in fields}
    boxes, readers = dict[str, RowReader](), context.dataset.readers
    for leader in {*options.leaders.values()}:
        lead = options.fused[leader]
        if lead is not None and lead.looks_at_boxes is not None:
            led = [readers[name] for name, other in options.leaders.items() if other == leader]
            boxes[leader] = next(reader for reader in led if reader.field.is_box)
    rows = RowFields(fields, options.leaders, context.options.output, options.mosaics, boxes)
    return rows, ElementFields(elements, options.leaders)


def _stages(context: ProducerContext, rows: RowFields, elements: ElementFields, name: str) -> list[Stage]:
    """Return where a field is made: as ``_Machinery`` makes it."""
    dataset, options = context.dataset, context.field_options
    if name not in dataset.readers:
        function = dataset.target_transform if name == LABEL else None
        made = [] if function is None else [Stage(_BY_PYTHON, steps_of(function), "target_transform is Python")]
        return [Stage(IN_THE_INDEX), *made]
    reader, collate = dataset.readers[name], options.collates.get(name)
    traits, leader = reader.field.traits, rows.leaders.get(name)
    follows = f"moved with {leader}"
    if options.text is not None and name in options.text.names:
        return [Stage(NATIVE), Stage(_BY_NUMPY, (called(options.text.collate),))]
    if name in elements.fields:
        steps = elements.fields[name].steps
        return [Stage(NATIVE, (follows,) if not steps and elements.leader_of(name) else steps)]
    pick = next((pick for pick in context.picks if name in pick.fields), None)
    if pick is not None:
        return [Stage(_BY_PYTHON, (called(pick), *(() if collate is None else (str(collate),))))]
    if name in dataset.lists:
        return [Stage(_BY_PYTHON, ("lists",))]
    if name in rows.fields:
        steps = rows.fields[name].steps
        made = [Stage(NATIVE, (follows,) if not steps and reader.is_mask and leader else steps)]
        if rows.mosaics is not None and (reader.is_picture or reader.is_mask):
            made.append(Stage(_BY_NUMPY, rows.mosaics.steps))
        return made
    if traits.is_tokens:
        if isinstance(collate, PreferenceCollate) and not collate.apart:
            return [Stage(NATIVE, (called(collate),))]
        is_padded = isinstance(collate, (PadCollate, PreferenceCollate))
        return [Stage(NATIVE, ("pad",))] if is_padded else [Stage(NATIVE), Stage(_BY_NUMPY, (str(collate),))]
    checked = [Stage(NATIVE, ("checksums",))] if context.options.verify else []
    if traits.is_npy:
        return [*checked, Stage(_BY_NUMPY, (str(collate),))]
    if not traits.is_ragged:
        return [*checked, Stage(_BY_PYTHON, ("text" if traits.is_text else "JSON" if traits.is_json else "bytes",))]
    lead = None if leader is None else rows.fields[leader].fused
    is_moved = lead is not None and bool(reader.field.geometry or reader.field.owner)
    pieces = () if rows.mosaics is None else rows.mosaics.steps
    moved = (follows, *pieces, *lead.rules) if lead is not None and is_moved else ()
    return [*checked, Stage(_BY_NUMPY, (*moved, str(collate)))]


def _columns(context: ProducerContext) -> dict[str, NDArray[Any]]:
    """Return the columns of the dataset's samples by name."""
    dataset = context.dataset
    names = [name for name in dataset.form.names if name not in dataset.readers]
    if dataset.form.kind == "pair":  # whose only column is "label"
        assert dataset.labels is not None
        return dict.fromkeys(names, dataset.labels)
    return {name: column_values(dataset.store, name) for name in names}


# Threads and memory of one process, and what they do with each field.


@dataclass(frozen=True, slots=True)
class _Machinery:
    """
    Begins batches: ``rows`` by ``decoders``, and of what Python must see, ``tokens``, ``preferences`` of prompts and
    answers, ``ragged`` arrays, ``arrays`` of several free sizes, and ``others``, which are text, JSON and bytes; of
    fields of lists the rows of ``elements``, and ``lists`` of anything else, of which ``picked`` are those that a Pick
    draws from. ``text`` is packed with placeholders of the pictures.
    """

    context: ProducerContext
    columns: Mapping[str, NDArray[Any]]
    pool: _native.ThreadPool
    pillow: PillowThreads
    pillow_count: PillowCount
    rows: RowFields
    decoders: Mapping[str, RowDecoder]
    canvases: Mapping[str, BatchBuffers]  # of mosaics, by field
    tokens: Sequence[TokenField]
    preferences: PreferenceFields | None
    ragged: Sequence[RowReader]
    arrays: Sequence[RowReader]
    others: Sequence[RowReader]
    elements: Mapping[str, RowDecoder]
    lists: Sequence[RowReader]
    picked: Sequence[tuple[RowReader, Pick]]
    text: VisionText | None

    @property
    def buffer_bytes(self) -> int:
        """Bytes of batches: in progress, with the training loop, and free."""
        decoders = [*self.decoders.values(), *self.elements.values()]
        buffers = [*self.canvases.values(), *(each for decoder in decoders for each in decoder.buffers)]
        rows = sum(each.allocated_bytes for each in buffers)
        return rows + sum(tokens.filler.allocated_bytes for tokens in self.tokens if tokens.filler is not None)

    def batches(self, whole: BatchPart, *, repair: Any) -> _native.RowBatches | None:
        """
        Return the batches of a chunk, made by native code alone but for those with bad samples, which ``repair`` makes.

        None if ``begin`` has to start each: if a field has no rows, if those of one differ in shape, if some values
        could not be read, if pictures become mosaics or meet functions, or once Pillow has had to decode a picture.
        """
        fields = self.context.field_options
        is_other = bool(
            self.tokens
            or self.preferences
            or self.ragged
            or self.arrays
            or self.others
            or self.elements
            or self.lists
            or self.picked
            or self.text
            or fields.adds
            or fields.mosaics
            or fields.patches
        )
        has_steps = self.context.clips is not None or self.context.steps is not None
        if is_other or has_steps or not self.decoders or self.pillow.has_begun:
            return None
        outputs: dict[str, Any] = {}
        for name, decoder in self.decoders.items():
            leader = self.rows.leader_of(name)
            output = decoder.output(whole.rows[name], leader=None if leader is None else whole.rows[leader])
            if output is None:
                return None
            outputs[name] = output
        indices = whole.chunk.batches.indices
        for name, column in self.columns.items():
            outputs[name] = self._column(column[indices])
        form = self.context.dataset.form
        return _native.row_batches(
            [outputs[name] for name in form.names],
            np.ascontiguousarray(whole.chunk.batches.cuts),
            container=_CONTAINERS[form.kind],
            names=form.names,
            pool=self.pool,
            from_dlpack=self.context.options.output.from_dlpack,
            made=self.pillow_count.native,
            pictures=sum(decoder.field.reader.field.traits.is_picture for decoder in self.decoders.values()),
            proof=whole.proof_of_all,
            repair=repair,
        )

    def _led(self) -> dict[str | None, list[RowReader]]:
        """Return the ragged fields by the leader that they follow, None for those that follow none."""
        led: dict[str | None, list[RowReader]] = {}
        for reader in self.ragged:
            led.setdefault(self.rows.leaders.get(reader.field.name), []).append(reader)
        return led

    def _column(self, values: NDArray[Any]) -> _native.ColumnOutput:
        given, times = tensor_labels(self.context.dataset, values), self.context.field_options.repeats
        if given is None:
            return _native.ColumnOutput(None, make=partial(_some_values, self.context, values), pinned=None)
        pinned = pinned_memory(given.dtype) if self.context.options.output.is_pinned else None
        return _native.ColumnOutput(given, make=None, pinned=pinned, times=times)

    def begin(self, part: BatchPart) -> list[PendingFields]:
        """Start all fields of a batch. Raises SchemaError if rows do not fit together."""
        options, fields = self.context.options, self.context.field_options
        rows = PendingRowFields(self.rows, part, self.decoders, self.canvases, self.pillow_count)
        pending: list[PendingFields] = [rows]
        if fields.adds:
            pending.append(PendingAdded(rows.led(fields.added_by), len(part), options.output))
        pending += [tokens.begin(part) for tokens in self.tokens]
        if self.preferences is not None:
            pending.append(PreferenceTokens(self.preferences, part))
        names = [reader.field.name for reader in (*self.ragged, *self.arrays, *self.others)]
        if names:
            checked = begin_check(part, names, self.pool, verify=options.verify)
            pending += [PendingValues(reader, part, checked) for reader in self.others]
            output, collates = options.output, fields.collates
            pending += [PendingArrays(r, part, checked, collates[r.field.name], output) for r in self.arrays]
            for leader, led in self._led().items():
                pending.append(PendingRagged(led, collates, part, checked, rows.led(leader), output))
        pending += self._begin_elements(part, rows)
        if self.text is not None:
            pending.append(self.text.begin(part, _grids(pending, self.text.text.picture, len(part))))
        verify, output = options.verify, options.output
        pending += [PendingLists(reader, part, verify=verify, output=output) for reader in self.lists]
        for reader, pick in self.picked:
            how = fields.collates.get(reader.field.name)
            pending.append(PendingPicked(reader, part, pick, how, verify=verify, output=output))
        return pending

    def _begin_elements(self, part: BatchPart, rows: PendingRowFields) -> list[PendingElements]:
        """Start the elements of lists that become rows, leaders before those that follow them."""
        begun: dict[str, PendingElements] = {}
        store, output = self.context.dataset.store, self.context.options.output
        for name, chunk in part.elements.items():
            leader = chunk.leader
            led = None if leader is None else begun.get(leader) or rows.led(leader)
            begun[name] = PendingElements(self.elements[name], chunk, part, store, self.pillow_count, output, led)
        return list(begun.values())


def _start(
    context: ProducerContext,
    rows: RowFields,
    elements: ElementFields,
    columns: Mapping[str, NDArray[Any]],
    pillow_count: PillowCount,
) -> _Machinery:
    """Threads and memory for the calling process."""
    options = context.options
    pool, pillow = _native.ThreadPool(options.threads), PillowThreads(options.threads)

    def decoder(field: RowField) -> RowDecoder:
        return RowDecoder(field, pool, _buffers(context, field), pillow, options.verify)

    every, picks = context.dataset.readers.values(), {name: pick for pick in context.picks for name in pick.fields}
    text = context.field_options.text
    packed = () if text is None else text.names
    others = [reader for reader in every if not (reader.has_rows or reader.field.name in packed)]
    picked = [(reader, picks[reader.field.name]) for reader in others if reader.field.name in picks]
    others = [reader for reader in others if reader.field.name not in picks]
    lists = [reader for reader in others if reader.field.name in context.dataset.lists]
    readers = [reader for reader in others if reader not in lists]
    collates = context.field_options.collates
    joint = {
        reader.field.name: TokenReader(reader)
        for reader in readers
        if (how := _joint_collate(collates.get(reader.field.name))) and not how.apart
    }
    preference = next(filter(None, map(_joint_collate, collates.values())), None)
    preferences = None
    if joint and preference is not None:
        preferences = PreferenceFields(joint, preference, pool, options.verify, options.output)
    return _Machinery(
        context,
        columns,
        pool,
        pillow,
        pillow_count,
        rows,
        {name: decoder(field) for name, field in rows.fields.items()},
        canvases={
            name: BatchBuffers(options.depth + 2, options.output)
            for name, field in rows.fields.items()
            if rows.mosaics is not None and (field.reader.is_picture or field.reader.is_mask)
        },
        tokens=[
            _token_field(context, reader, pool)
            for reader in readers
            if reader.field.traits.is_tokens and reader.field.name not in joint
        ],
        preferences=preferences,
        ragged=[reader for reader in readers if reader.field.traits.is_ragged],
        arrays=[reader for reader in readers if reader.field.traits.is_npy],
        others=[reader for reader in readers if not _is_joined(reader.field.traits)],
        elements={name: decoder(field) for name, field in elements.fields.items()},
        lists=lists,
        picked=picked,
        text=None if text is None else VisionText(text, context.dataset.readers, pool, options.verify, options.output),
    )


def _grids(pending: Sequence[PendingFields], picture: str, count: int) -> Pictures:
    """Return the grids of patches of a batch's pictures, and where those of each of its ``count`` samples begin."""
    for each in pending:
        if isinstance(each, PendingElements) and each.name == picture:
            return each.pictures
    rows = next(each for each in pending if isinstance(each, PendingRowFields))
    return rows.grids(picture), np.arange(count + 1, dtype=np.int64)


def _is_joined(traits: Traits) -> bool:
    """Whether a batch has values as ``collate=`` says."""
    return traits.is_tokens or traits.is_ragged or traits.is_npy


def _joint_collate(how: object) -> PreferenceCollate | None:
    return how if isinstance(how, PreferenceCollate) else None


def _token_field(context: ProducerContext, reader: RowReader, pool: _native.ThreadPool) -> TokenField:
    options, tokens = context.options, TokenReader(reader)
    collate = context.field_options.collates[reader.field.name]
    if isinstance(collate, PreferenceCollate):
        collate = collate.padding_of(reader.field.name)
    filler = None
    if isinstance(collate, PadCollate):
        filler = TokenFiller(context, tokens, collate, pool, kept=context.options.depth + 2)
    return TokenField(tokens, collate, pool, filler, options.verify, options.output)


def _buffers(context: ProducerContext, field: RowField) -> list[BatchBuffers]:
    """Return one for each tensor of the field: sizes of views may differ."""
    count = 1 + len(field.others) if field.is_list else 1
    options = context.options
    return [BatchBuffers(options.depth + 2, options.output) for _ in range(count)]


def _some_values(context: ProducerContext, values: NDArray[Any], first: int, last: int) -> Any:
    return _collated(context, values[first:last])


def _collated(context: ProducerContext, values: NDArray[Any]) -> Any:
    """Return a column of some samples as torch's default collate joins them: a tensor, or a list of text."""
    if context.field_options.repeats > 1:
        values = np.concatenate([values] * context.field_options.repeats)
    if values.dtype.kind in "SU":
        return values.tolist()
    # Only a pair, whose one column is the label, has a function.
    return collate_labels(context.dataset, values, context.options.output)


# A batch that Python begins: waits for all of its fields, deals with bad samples, and puts them together.


class _FieldsBatch:
    """The fields of one batch in progress, and the ``columns`` from which those of its samples are picked."""

    __slots__ = ("_columns", "_context", "_part", "_pending")

    def __init__(
        self,
        context: ProducerContext,
        part: BatchPart,
        pending: Sequence[PendingFields],
        columns: Mapping[str, NDArray[Any]],
    ) -> None:
        self._context = context
        self._part = part
        self._pending = pending
        self._columns = columns

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        for pending in self._pending:
            pending.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when all its fields are there."""
        errors, failed = self._errors(), dict[int, SampleError]()
        while True:
            try:
                return self._made(errors, failed)
            except FailedSamplesError as exc:
                failed |= failures(exc, on_error=self._context.options.on_error)
                errors = dict(sorted((failed | errors).items()))

    def _made(self, errors: Mapping[int, SampleError], failed: Mapping[int, SampleError]) -> FinishedBatch:
        """
        Return the batch without the samples of these ``errors``, or with blanks for them; among them are those that
        functions ``failed`` for. Raises FailedSamplesError for others that they fail for.
        """
        options, indices = self._context.options, self._part.indices
        clips, lost = self._context.clips, None
        if clips is not None and errors:
            lost = clips.with_all_frames(errors)
        kept = kept_positions(errors, len(indices), on_error=options.on_error, lost=lost) if errors else None
        indices = indices if kept is None else indices[kept]
        if len(indices) == 0:
            return FinishedBatch(None, 0, 0, list(errors.values()), proof=self._part.proof, lost=lost)
        values: dict[str, Any] = {}
        for pending in self._pending:
            if isinstance(pending, PendingRowFields):
                pending.lay_out(errors, kept)
        for pending in self._pending:
            values |= pending.values(kept)
        nbytes = nbytes_of(values)  # of what lies in buffers, unlike columns
        if clips is not None:
            zeroed, views = lost if kept is None else None, self._context.field_options.views
            for name, value in values.items():
                is_views = views is not None and views.is_list and self._context.dataset.readers[name].is_picture
                values[name] = clips.joined(value, zeroed, is_list_of_views=is_views)
        for name, column in self._columns.items():
            chosen = column[indices]
            if clips is None:
                values[name] = _collated(self._context, chosen)
            elif name in clips.once:
                values[name] = _collated(self._context, chosen[:: clips.frames])
            else:
                values[name] = clips.joined(_collated(self._context, chosen))
        batch = self._after_steps(self._assembled(values), failed, kept)
        tokens, slots = self._token_counts()
        proof = self._part.proof
        return FinishedBatch(batch, len(indices), nbytes, list(errors.values()), tokens, slots, proof=proof, lost=lost)

    def _after_steps(self, batch: Any, failed: Collection[int], kept: NDArray[np.int64] | None) -> Any:
        """
        Return the batch of the samples that are ``kept`` (None: all, with blanks where functions have ``failed``) after
        the steps. Raises FailedSamplesError, by place in the whole batch.
        """
        if self._context.steps is None:
            return batch
        clips, blanks = self._context.clips, list[Collection[int]]()
        rows = next((pending for pending in self._pending if isinstance(pending, PendingRowFields)), None)
        if kept is None and rows is not None:
            blanks = [each if clips is None else clips.with_all_frames(each).tolist() for each in rows.blanks(failed)]
        ids = self._part.chunk.batches.ids[self._part.part]
        numbered = Numbered(batch, self._part.epoch, ids if kept is None else ids[kept])
        try:
            return self._context.steps.run(numbered, blanks=blanks)
        except FailedSamplesError as exc:
            if kept is None:
                raise
            raise FailedSamplesError({int(kept[place]): error for place, error in exc.errors.items()}) from None

    def _errors(self) -> dict[int, SampleError]:
        """Wait for all fields, and return one error of each bad sample, by position, ascending."""
        errors: dict[int, SampleError] = {}
        for pending in self._pending:
            for position, error in pending.errors().items():
                errors.setdefault(position, error)
        return dict(sorted(errors.items())) if errors else errors

    def _assembled(self, values: Mapping[str, Any]) -> Any:
        """Return what the training loop gets; padded values come with their mask."""
        form, options = self._context.dataset.form, self._context.field_options
        if form.kind == "pair":
            return list(form.assemble(values))  # like torch's default collate
        if form.kind != "dict":
            parts = form.assemble(values)
            return (*parts, *map(values.__getitem__, options.adds)) if options.adds else parts
        batch: dict[str, Any] = {}
        packed = () if options.text is None else options.text.names
        for name in form.names:
            how = options.collates.get(name)
            if name in packed:
                batch |= values.get(name, {})
            elif name in self._part.elements:
                batch[name], batch[counts_name(name)] = values[name]
            elif isinstance(how, PreferenceCollate):
                batch |= _named(name, values) if how.apart else values.get(name, {})
            elif is_padded(how):
                batch[name], batch[mask_name(name)] = values[name]
            else:
                batch[name] = values[name]
        return batch | {name: values[name] for name in options.adds}

    def _token_counts(self) -> tuple[int, int]:
        """Return the tokens and patches in all fields of the batch, and the slots for them."""
        kinds = (
            PaddedTokens,
            JoinedTokens,
            PreferenceTokens,
            PendingRowFields,
            PendingElements,
            PendingPicked,
            PendingText,
        )
        counts = [pending.counts for pending in self._pending if isinstance(pending, kinds)]
        return sum(tokens for tokens, _ in counts), sum(slots for _, slots in counts)


def _named(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a padded prompt or answer under the names of a PreferenceCollate whose tensors are ``apart``."""
    ids, mask = values[name]
    return {f"{name}_input_ids": ids, f"{name}_attention_mask": mask}
