"""Fields of lists in a batch: the elements of all its samples with how many each has, or the one that is picked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.codec import describe_status
from fastio.dataset.field_values import FieldValues
from fastio.dataset.record_collate import Rows as Collate
from fastio.dataset.record_collate import is_padded
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PadCollate, PreferenceCollate
from fastio.errors import SampleError
from fastio.loader.output import Output
from fastio.loader.producer.batch_part import BatchPart, collate_lengths, collate_shapes
from fastio.loader.producer.decoding import DecodedRows, DecodingRows, RowChunk, RowDecoder, RowField, RowPart
from fastio.loader.producer.pillow_threads import PillowCount
from fastio.loader.producer.rows import laid_out
from fastio.store.index.elements import Elements
from fastio.transforms.fused import PicturePass
from fastio.transforms.pick import Pick
from fastio.types.spans import elements_of

__all__ = [
    "PendingElements",
    "PendingLists",
    "PendingPicked",
]


_ANY_PICTURE = (256, 256, 3)  # height, width and channels: where a chunk has no picture, all results have one shape


def _part_of(part: BatchPart, name: str) -> tuple[slice, NDArray[np.int64]]:
    """Return which elements of its chunk belong to a batch, and where those of each sample begin among them."""
    firsts = part.chunk.lists[name].firsts[part.part.start : part.part.stop + 1]
    return slice(int(firsts[0]), int(firsts[-1])), firsts - firsts[0]


def _by_sample(errors: Mapping[int, SampleError], firsts: NDArray[np.int64]) -> dict[int, SampleError]:
    """Return one error of each sample that has a bad element, by the position of the sample."""
    found: dict[int, SampleError] = {}
    for position, error in errors.items():
        found.setdefault(int(np.searchsorted(firsts, position, side="right")) - 1, error)
    return found


class PendingElements:
    """
    A field of lists whose elements become rows of one array, pictures or arrays of fixed shape; see PendingFields.

    The batch has ``(N, ...)`` of all N elements, and how many each sample has, int64 ``(B,)``; of views a list of such
    arrays with one count, or of repeats ``(R * N, ...)`` and ``(R * B,)``, as of samples that come R times. Raises
    SchemaError for pictures that do not fit together.
    """

    def __init__(
        self, field: RowField, decoder: RowDecoder, chunk: RowChunk, part: BatchPart, count: PillowCount, output: Output
    ) -> None:
        self._field, self._chunk, self._output, self._count = field, chunk, output, count
        self.name = field.reader.field.name
        self.counts = 0, 0  # patches of the batch, and its slots for them
        elements, self._firsts = _part_of(part, self.name)
        self._is_last = part.is_last
        self._decoding: DecodingRows | None = None
        self._decoded = DecodedRows([], [])
        if elements.stop > elements.start:
            self._decoding = decoder.begin(RowPart(chunk, elements))
        else:
            passes = (field.fused, *field.others) if field.is_list else (field.fused,)
            shapes = [self._shape(view, fused) for view, fused in enumerate(passes)]
            taken = [
                buffers.take_rows((0, *shape), field.reader.dtype)
                for buffers, shape in zip(decoder.buffers, shapes, strict=True)
            ]
            self._decoded = DecodedRows([rows for rows, _ in taken], [value for _, value in taken])

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
        field, chunk = self._field, self._chunk
        if field.patches is not None:
            return field.patches.pixels, _ANY_PICTURE[2]
        if chunk.shape is not None:
            return chunk.others[view - 1].shape if view else chunk.shape
        stored = np.array([_ANY_PICTURE], np.int64)
        if fused is not None:
            stored = fused.plan(np.zeros(1, np.int64), stored, epoch=chunk.epoch).shapes
        return field.row_shape(stored[0])

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        if self._decoding is not None:
            self._decoded = self._decoding.result()
            if self._field.reader.field.traits.is_picture:
                self._count.add(int(self._firsts[-1]), self._decoded.kinds, is_last=self._is_last)
        return _by_sample(self._decoded.errors, self._firsts)

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        counts, elements = np.diff(self._firsts), None
        if kept is not None:
            elements, counts = elements_of(self._firsts, kept)
        patches = self._field.patches
        if patches is not None:
            grids = self.pictures[0] if elements is None else self.pictures[0][elements]
            value, self.counts = self._decoded.patches(patches, grids, elements, self._output)
        else:
            rows = self._decoded.blanked() if elements is None else self._decoded.at(elements, self._output)
            views = [laid_out(self._field, each, self._output) for each in rows]
            value = views if self._field.is_list else views[0]
        if not self._field.is_list:
            counts = np.tile(counts, 1 + len(self._field.others))
        return {self.name: (value, self._output.of(counts))}

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
        self._elements, self._firsts = _part_of(part, reader.field.name)
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
        return self._output.of(np.asarray(value))

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
            key_of = "sample {} of the batch".format
            return {self._name: collate_shapes(values, self._field, self._how, self._output, key_of=key_of)}
        collated = self._collated([np.asarray(value) for value in values], self._how)
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
