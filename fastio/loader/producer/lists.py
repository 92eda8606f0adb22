"""Fields of lists in a batch: the elements of all its samples with how many each has, or the one that is picked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.codec import describe_status
from fastio.dataset.bfloat16 import array_of
from fastio.dataset.field_values import FieldValues
from fastio.dataset.record_collate import Rows as Collate
from fastio.dataset.record_collate import is_padded
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PadCollate, PreferenceCollate
from fastio.errors import SampleError
from fastio.loader.output import Output
from fastio.loader.producer.batch_part import BatchPart, ElementChunk, collate_lengths, collate_shapes
from fastio.loader.producer.chunks import SampleChunk
from fastio.loader.producer.decoding import DecodedRows, DecodingRows, RowChunk, RowDecoder, RowPart
from fastio.loader.producer.pillow_threads import PillowCount
from fastio.loader.producer.rows import LedFields, check_raw, laid_out, sizes_in_words
from fastio.samplers.batches import Batches
from fastio.store.index.elements import Elements
from fastio.store.protocol import SampleStore
from fastio.transforms.canvas import RefusedPicturesError
from fastio.transforms.fused import PicturePass, Planned
from fastio.transforms.pick import Pick
from fastio.types.spans import elements_of, firsts_of, numbers_within

__all__ = [
    "ElementFields",
    "PendingElements",
    "PendingLists",
    "PendingPicked",
]


_LARGE_PICTURE = (1 << 20, 1 << 20, 3)  # larger than any crop
_ANY_PICTURE = (256, 256, 3)  # height, width and channels: where a chunk has no picture, all results have one shape


class ElementFields(LedFields):
    """The fields of lists whose elements become rows; a leader is one of them, or a field of one picture a sample."""

    __slots__ = ()

    def look_up(self, chunk: SampleChunk, rows: Mapping[str, RowChunk], *, epoch: int) -> dict[str, ElementChunk]:
        """Return what the elements of a chunk's samples decode to, by field; ``rows`` are those of other fields."""
        chunks: dict[str, ElementChunk] = {}
        for name in self.in_order:
            own, leader = chunk.lists[name], self.leader_of(name)
            if leader is None:
                looked_up = self.fields[name].look_up(own.batches, chunk.values[name], epoch=epoch)
                chunks[name] = ElementChunk(looked_up, own.firsts)
            else:
                led = rows[leader] if leader in rows else chunks[leader].rows
                firsts = chunk.lists[leader].firsts if leader in chunk.lists else None
                chunks[name] = self._look_up_led(name, chunk, leader, led, firsts)
        return chunks

    def _look_up_led(
        self,
        name: str,
        chunk: SampleChunk,
        leader: str,
        led: RowChunk,
        firsts: NDArray[np.int64] | None,
    ) -> ElementChunk:
        """
        Return elements that follow the rows ``led`` of a leader: of lists, whose elements begin at ``firsts``, each
        follows that at its place, or if it has one picture a sample (None), all of a sample follow that.
        """
        own, values = chunk.lists[name], chunk.values[name]
        counts, expected, kept = own.counts, None, None
        if firsts is None:
            positions = np.repeat(np.arange(len(counts)), counts)
        else:
            differs = counts != np.diff(firsts)
            if differs.any():
                expected = np.where(differs, np.diff(firsts), -1)
                kept = np.flatnonzero(~np.repeat(differs, counts))
                counts = np.where(differs, 0, counts)
            positions = np.repeat(firsts[:-1], counts) + numbers_within(counts)
        own_firsts, which = firsts_of(counts), own.batches.indices
        if kept is not None:
            which, values = which[kept], values.at(kept)
        batches = Batches(which, own_firsts[chunk.batches.cuts], random_ids=led.batches.ids[positions])
        stored = None if led.stored is None else led.stored[positions]
        rows = self.fields[name].look_up(batches, values, epoch=led.epoch, leader=stored)
        return ElementChunk(rows, own_firsts, leader, positions, expected)


def _elements_of(part: BatchPart, name: str) -> tuple[slice, NDArray[np.int64]]:
    """Return which elements of its chunk belong to a batch, and where those of each sample begin among them."""
    firsts = part.chunk.lists[name].firsts[part.part.start : part.part.stop + 1]
    return slice(int(firsts[0]), int(firsts[-1])), firsts - firsts[0]


def _by_sample(errors: Mapping[int, SampleError], firsts: NDArray[np.int64]) -> dict[int, SampleError]:
    """Return one error of each sample that has a bad element, by the position of the sample."""
    found: dict[int, SampleError] = {}
    for position, error in errors.items():
        found.setdefault(int(np.searchsorted(firsts, position, side="right")) - 1, error)
    return found


class LeadingPictures(Protocol):
    """The pictures of a batch that elements of lists follow."""

    @property
    def size(self) -> tuple[int, int]:
        """The height and width of their rows."""
        ...

    def planned_at(self, positions: NDArray[np.int64]) -> Planned | None:
        """Return the plan of those at these positions in the batch; None if they are not moved."""
        ...


class PendingElements:
    """
    A field of lists whose elements become rows of one array, pictures or arrays of fixed shape; see PendingFields.

    The batch has ``(N, ...)`` of all N elements, and how many each sample has, int64 ``(B,)``; of views a list of such
    arrays with one count, or of repeats ``(R * N, ...)`` and ``(R * B,)``, as of samples that come R times. Raises
    SchemaError for pictures that do not fit together.
    """

    def __init__(
        self,
        decoder: RowDecoder,
        chunk: ElementChunk,
        part: BatchPart,
        store: SampleStore,
        count: PillowCount,
        output: Output,
        led: LeadingPictures | None = None,
    ) -> None:
        self._field, self._chunk, self._output, self._count = decoder.field, chunk, output, count
        self._part, self._store, self._led = part, store, led
        self.name = self._field.reader.field.name
        self.counts = 0, 0  # patches of the batch, and its slots for them
        elements, self._firsts = chunk.part(part.part)
        self._values = RowPart(chunk.rows, elements)
        self._leads = None if led is None else led.planned_at(self._positions(part))
        self._decoding: DecodingRows | None = None
        self._decoded = DecodedRows([], [])
        if elements.stop > elements.start:
            check_raw(self._field, self._values.indices, chunk.leader, self._leads)
            self._decoding = decoder.begin(self._values, leader=self._leads)
        else:
            passes = (self._field.fused, *self._field.others) if self._field.is_list else (self._field.fused,)
            shapes = [self._shape(view, fused) for view, fused in enumerate(passes)]
            taken = [
                buffers.take_rows((0, *shape), self._field.reader.dtype)
                for buffers, shape in zip(decoder.buffers, shapes, strict=True)
            ]
            self._decoded = DecodedRows([rows for rows, _ in taken], [value for _, value in taken])

    def _positions(self, part: BatchPart) -> NDArray[np.int64]:
        """Return which rows of the batch's leader its elements follow."""
        chunk, leader = self._chunk, self._chunk.leader
        assert leader is not None
        assert chunk.positions is not None
        first = part.elements[leader].part(part.part)[0].start if leader in part.elements else part.part.start
        positions: NDArray[np.int64] = chunk.positions[self._values.part] - first
        return positions

    def planned_at(self, positions: NDArray[np.int64]) -> Planned | None:
        """As LeadingPictures.planned_at."""
        planned = None if self._decoding is None else self._decoding.planned
        return None if planned is None else planned.part(positions)

    @property
    def size(self) -> tuple[int, int]:
        """As LeadingPictures.size."""
        shape = np.shape(self._decoded.rows[0]) if self._decoding is None else self._decoding.shape
        return (shape[2], shape[3]) if self._field.is_planar else (shape[1], shape[2])

    @property
    def pictures(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        The grids of patches of all pictures, ``(N, 2)``, zeros if they were not cut, and where the pictures of each
        sample begin, ``(B + 1,)``.
        """
        planned = None if self._decoding is None else self._decoding.planned
        if planned is None or planned.grids is None:
            return np.zeros((int(self._firsts[-1]), 2), np.int64), self._firsts
        return planned.grids, self._firsts

    def _shape(self, view: int, fused: PicturePass | None) -> tuple[int, ...]:
        """Return the shape of rows of a view for a batch that has none: that of others, if it is known without them."""
        field, chunk = self._field, self._chunk.rows
        if field.patches is not None:
            return field.patches.pixels, _ANY_PICTURE[2]
        if field.reader.is_mask:
            size = _ANY_PICTURE[:2] if self._led is None else self._led.size
            return (*size, _ANY_PICTURE[2]) if len(field.reader.field.shape) == 3 else size
        if chunk.shape is not None:
            return chunk.others[view - 1].shape if view else chunk.shape
        stored = np.array([_ANY_PICTURE], np.int64)
        if fused is not None:
            try:
                stored = fused.plan(np.zeros(1, np.int64), stored, epoch=chunk.epoch).shapes
            except RefusedPicturesError:  # by a larger crop
                stored = np.array([_LARGE_PICTURE], np.int64)
                stored = fused.plan(np.zeros(1, np.int64), stored, epoch=chunk.epoch).shapes
        return field.row_shape(stored[0])

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        if self._decoding is not None:
            decoded = self._decoded = self._decoding.result()
            if self._field.reader.field.traits.is_picture:
                self._count.add(int(self._firsts[-1]), decoded.kinds, is_last=self._part.is_last)
            if decoded.errors and self._leads is not None and self._chunk.leader is not None:
                leader, planned = self._chunk.leader, self._leads
                decoded.errors = sizes_in_words(self._field, self._values, decoded.errors, leader, planned)
        errors = _by_sample(self._decoded.errors, self._firsts)
        return errors | {sample: self._unlike(sample) for sample in np.flatnonzero(self._expected >= 0).tolist()}

    @property
    def _expected(self) -> NDArray[np.int64]:
        """How many elements the samples should have that have another number than their leader; -1 for the others."""
        expected = self._chunk.expected
        return np.full(len(self._part), -1, np.int64) if expected is None else expected[self._part.part]

    def _unlike(self, sample: int) -> SampleError:
        """Return the error of a sample that has another number of elements than its leader."""
        index, store, leader = int(self._part.indices[sample]), self._store, self._chunk.leader
        key = store.keys([index])[0]
        found = int(self._part.chunk.lists[self.name].counts[self._part.part][sample])
        return SampleError(
            f"{store.path}[{index}] ({key!r}), field {self.name!r}: has {found}, but {leader!r} "
            f"{self._expected[sample]}: expected equally many, which move together",
            path=store.path,
            index=index,
            key=key,
            field=self.name,
        )

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        counts, elements = np.diff(self._firsts), None
        if kept is not None:
            elements, counts = elements_of(self._firsts, kept)
        patches = self._field.patches
        if patches is not None:
            grids = self.pictures[0] if elements is None else self.pictures[0][elements]
            batch, self.counts = self._decoded.patches(patches, grids, elements, self._output)
            return {self.name: (batch, self._output.of(counts))}
        rows: Sequence[Any]
        if elements is not None:
            rows = self._decoded.at(elements, self._output)
        elif (self._expected >= 0).any():
            rows, counts = self._filled_up(counts)
        else:
            rows = self._decoded.blanked()
        views = [laid_out(self._field, each, self._output) for each in rows]
        if self._field.is_list:
            return {self.name: (views, self._output.of(counts))}
        return {self.name: (views[0], self._output.of(np.tile(counts, 1 + len(self._field.others))))}

    def _filled_up(self, counts: NDArray[np.int64]) -> tuple[Sequence[Any], NDArray[np.int64]]:
        """Return the rows with zeros for samples that have another number than their leader, and that for their own."""
        self._decoded.blanked()
        rows = np.asarray(self._decoded.rows[0])
        is_unlike = self._expected >= 0
        counts = np.where(is_unlike, self._expected, counts)
        filled = np.zeros((int(counts.sum()), *rows.shape[1:]), rows.dtype)
        filled[~np.repeat(is_unlike, counts)] = rows
        return [self._output.of(filled)], counts

    def cancel(self) -> None:
        """See PendingFields."""
        if self._decoding is not None:
            self._decoding.cancel()


class PendingLists:
    """
    A field of lists of texts, bytes, token ids or ragged arrays, which become a list of lists, as a FastDataset has
    them: of values that may be missing, a list of these and None. See PendingFields.
    """

    def __init__(self, reader: RowReader, part: BatchPart, *, verify: bool, output: Output) -> None:
        self._reader, self._part, self._verify, self._output = reader, part, verify, output
        self._elements, self._firsts = _elements_of(part, reader.field.name)
        self._values: list[Any] = []

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        name, values = self._reader.field.name, FieldValues(self._reader)
        encoded = self._part.chunk.values[name].at(self._elements)
        indices = self._part.chunk.lists[name].batches.indices[self._elements]
        read = partial(values.read, verify=self._verify)
        if encoded.unread is None:
            try:
                self._values = read(indices, encoded.spans) if len(indices) else []
                return {}
            except SampleError:
                pass  # some value is bad: find out which
        errors: dict[int, SampleError] = {}
        self._values = []
        for position in range(len(indices)):
            one, index = encoded.spans.part(position, position + 1), indices[position : position + 1]
            status = 0 if encoded.unread is None else int(encoded.unread[position])
            try:
                if status:
                    raise self._reader.error(indices, encoded.spans, position, describe_status(status))
                self._values += read(index, one)
            except SampleError as exc:
                errors[position] = exc
                self._values.append(values.blank(index, one))
        return _by_sample(errors, self._firsts)

    def elements(self, kept: NDArray[np.int64] | None) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the elements of the samples at these positions, or of all (None), and how many each sample has."""
        if kept is None:
            return self._values, np.diff(self._firsts)
        elements, counts = elements_of(self._firsts, kept)
        return [self._values[position] for position in elements.tolist()], counts

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        values, counts = self.elements(kept)
        store = self._reader.store
        assert isinstance(store, Elements)
        return {self._reader.field.name: store.grouped([self._given(value) for value in values], counts)}

    def _given(self, value: Any) -> Any:
        """Return an array as the loader's output has it; text and bytes as they are."""
        if isinstance(value, (str, bytes)):
            return value
        return self._output.of(array_of(value))

    def cancel(self) -> None:
        """Do nothing: values are made when the loop waits for them."""


class PendingPicked:
    """
    A field of texts, bytes, token ids or ragged arrays of which a ``pick`` gives each sample one value, or none: as of
    a field without lists, ragged ones and token ids collated as ``how`` says. See PendingFields.
    """

    def __init__(
        self, reader: RowReader, part: BatchPart, pick: Pick, how: Collate | None, *, verify: bool, output: Output
    ) -> None:
        self._name, self._field = reader.field.name, reader.field.element
        self._lists = PendingLists(reader, part, verify=verify, output=output)
        self._missing = pick.missing(reader.field)
        self._how, self._output = how, output
        self.counts = 0, 0  # token ids of the batch, and its slots for them
        self._is_tokens = reader.field.traits.is_tokens

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        return self._lists.errors()

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        elements, counts = self._lists.elements(kept)
        left = iter(elements)
        values = [next(left) if count else self._missing for count in counts.tolist()]
        if self._how is None:
            return {self._name: values}
        if self._field.traits.is_npy:
            arrays, key_of = list(map(array_of, values)), "sample {} of the batch".format
            return {self._name: collate_shapes(arrays, self._field, self._how, self._output, key_of=key_of)}
        collated = self._collated(list(map(array_of, values)), self._how)
        if self._is_tokens:
            ids = sum(map(len, values))
            self.counts = ids, math.prod(collated[0].shape) if is_padded(self._how) else ids
        return {self._name: collated}

    def _collated(self, values: Sequence[NDArray[Any]], how: Collate) -> Any:
        assert not isinstance(how, PreferenceCollate), "which is for fields without lists"
        if isinstance(how, PadCollate):
            batch = how.arrays(values)
            return self._output.of(batch["input_ids"]), self._output.of(batch["attention_mask"])
        counts = np.array([len(value) for value in values], np.int64)
        return collate_lengths(np.concatenate(values), counts, how, self._output)

    def cancel(self) -> None:
        """Do nothing: values are made when the loop waits for them."""
