"""Fields of a batch that come as bytes: text, JSON, bytes and ragged arrays, compared with their checksums at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.codec.copied import parse_json
from fastio.dataset.bfloat16 import array_of
from fastio.dataset.field_values import FieldValues
from fastio.dataset.record_collate import Rows as Collate
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PadCollate, PreferenceCollate
from fastio.errors import SampleError
from fastio.loader.output import Output
from fastio.loader.producer.batch_part import BatchPart, collate_lengths, collate_shapes
from fastio.loader.producer.chunks import EncodedValues
from fastio.store.files.fetch import joined_spans
from fastio.transforms.batch.mosaic import Pieces
from fastio.transforms.frames import Frames, FramesByMember, Rows, find_mismatches, move_targets
from fastio.types.npy import npy_array
from fastio.types.spans import Spans

__all__ = [
    "PendingArrays",
    "PendingRagged",
    "PendingValues",
    "begin_check",
    "known_rows",
]


def begin_check(part: BatchPart, names: Sequence[str], pool: _native.ThreadPool, *, verify: bool) -> CheckedValues:
    """Begin to compare the values of these fields of a batch with their checksums, if there are any, by one job."""
    encoded = {name: part.encoded(name) for name in names}
    known = {name: values.spans for name, values in encoded.items() if values.spans.checksums is not None}
    if not (verify and known):
        return CheckedValues(encoded, {}, None)
    every = list(known.values())
    joined = joined_spans(every)
    sums = np.empty(len(joined), np.uint32)
    job = _native.checksum(joined, sums, pool)
    cuts = np.cumsum([0, *map(len, every)]).tolist()
    return CheckedValues(encoded, {name: sums[cuts[i] : cuts[i + 1]] for i, name in enumerate(known)}, job)


@dataclass(frozen=True, slots=True)
class CheckedValues:
    """Encoded values of a batch by field, and their checksums in progress, of those fields that have some."""

    encoded: Mapping[str, EncodedValues]
    sums: Mapping[str, NDArray[np.uint32]]
    job: _native.Job | None

    def bad(self, name: str) -> dict[int, int]:
        """Wait, and return the status of each value of a field that could not be read, or is not as it was packed."""
        if self.job is not None:
            self.job.wait()
        values = self.encoded[name]
        bad: dict[int, int] = {}
        if name in self.sums:
            assert values.spans.checksums is not None
            differs = np.flatnonzero(self.sums[name] != values.spans.checksums)
            bad = dict.fromkeys(differs.tolist(), _native.BAD_CHECKSUM)
        if values.unread is not None:
            positions = np.flatnonzero(values.unread)
            bad |= dict(zip(positions.tolist(), values.unread[positions].tolist(), strict=True))
        return bad

    def cancel(self) -> None:
        """Skip the values not yet begun."""
        if self.job is not None:
            self.job.cancel()


class PendingValues:
    """A field of text, JSON or bytes, which becomes a list of Python objects."""

    def __init__(self, reader: RowReader, part: BatchPart, checked: CheckedValues) -> None:
        self._reader = reader
        self._part = part
        self._checked = checked
        self._objects: list[Any] = []

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        name = self._reader.field.name
        spans, bad = self._checked.encoded[name].spans, self._checked.bad(name)
        if not bad:
            try:
                self._objects = list(map(_converter(self._reader), spans.views()))
                return {}
            except ValueError:
                pass  # some value is bad: find out which
        return self._one_by_one(spans, bad)

    def _one_by_one(self, spans: Spans, bad: Mapping[int, int]) -> dict[int, SampleError]:
        """Convert the values that can be, as a FastDataset does, and return what is wrong with the others."""
        indices, values = self._part.indices, FieldValues(self._reader)
        errors: dict[int, SampleError] = {}
        self._objects = []
        for position in range(len(self._part)):
            one, index = spans.part(position, position + 1), indices[position : position + 1]
            try:
                if position in bad:
                    raise self._reader.error(indices, spans, position, describe_status(bad[position]))
                self._objects += values.read(index, one, verify=False)
            except SampleError as exc:
                errors[position] = exc
                self._objects.append(values.blank(index, one))
        return errors

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        objects = self._objects if kept is None else [self._objects[position] for position in kept.tolist()]
        return {self._reader.field.name: objects}

    def cancel(self) -> None:
        """See PendingFields."""
        self._checked.cancel()


class PendingArrays(PendingValues):
    """A field of arrays that differ in other sizes than the first, collated as ``how`` says."""

    def __init__(
        self, reader: RowReader, part: BatchPart, checked: CheckedValues, how: Collate, output: Output
    ) -> None:
        super().__init__(reader, part, checked)
        self._how, self._output = how, output

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        indices = self._part.indices if kept is None else self._part.indices[kept]
        ((name, arrays),) = super().values(kept).items()
        store = self._reader.store
        return {
            name: collate_shapes(
                list(map(array_of, arrays)),
                self._reader.field,
                self._how,
                self._output,
                key_of=lambda at: repr(store.keys(indices[[at]])[0]),
            )
        }


def _converter(reader: RowReader) -> Callable[[NDArray[np.uint8]], Any]:
    """Return what makes a value of its bytes, or raises ValueError; of arrays over the same memory."""
    traits = reader.field.traits
    if traits.is_npy:
        return lambda data: npy_array(reader.field, data.data)
    if traits.is_text:
        return _text
    return _document if traits.is_json else np.ndarray.tobytes


def _text(data: NDArray[np.uint8]) -> str:
    return str(data.data, "utf-8")


def _document(data: NDArray[np.uint8]) -> Any:
    return parse_json(data.tobytes())


# Ragged fields of a batch: boxes, points and what belongs to them, moved with the picture and collated.


class MovedPictures(Protocol):
    """The pictures that boxes and points of a batch lie in."""

    @property
    def pieces(self) -> Pieces | None:
        """The pieces that pictures of mosaics are made of; None if they are no mosaics."""
        ...

    def frames(self) -> Frames | FramesByMember | None:
        """Return where the pictures of the samples were moved; None if they were not."""
        ...


class PendingRagged:
    """
    The ragged fields of a batch, together: rows of one may belong to those of another.

    ``pictures`` tell, once they are there, where they have been moved, and of which pieces they are.
    """

    def __init__(
        self,
        readers: Sequence[RowReader],
        collates: Mapping[str, Collate],
        part: BatchPart,
        checked: CheckedValues,
        pictures: MovedPictures,
        output: Output,
    ) -> None:
        self._readers = {reader.field.name: reader for reader in readers}
        self._collates = collates
        self._part = part
        self._checked = checked
        self._pictures = pictures
        self._output = output
        self._rows: dict[str, Rows] = {}

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        errors: dict[int, SampleError] = {}
        blank: dict[str, set[int]] = {}
        for name, reader in self._readers.items():
            spans = self._checked.encoded[name].spans
            bad = self._bad(reader, spans)
            self._rows[name] = _joined(reader, spans, bad)
            errors = bad | errors
            if bad:
                blank.setdefault(reader.field.owner or name, set()).update(bad)
        if self._pictures.frames() is None:
            return errors
        fields = [reader.field for reader in self._readers.values()]
        for position, (name, words) in find_mismatches(fields, self._rows).items():
            spans, owner = self._checked.encoded[name].spans, self._readers[name].field.owner
            errors.setdefault(position, self._readers[name].error(self._part.indices, spans, position, words))
            blank.setdefault(owner, set()).add(position)
        for field in fields:
            without = blank.get(field.owner or field.name)
            if without:
                self._rows[field.name] = _without(self._rows[field.name], without)
        return errors

    def _bad(self, reader: RowReader, spans: Spans) -> dict[int, SampleError]:
        """Return what is wrong with values of a field: they cannot be read, or are no whole rows."""
        indices = self._part.indices
        bad = {
            position: reader.error(indices, spans, position, describe_status(status))
            for position, status in self._checked.bad(reader.field.name).items()
        }
        fits = reader.field.fits(spans.sizes)
        if fits.all():
            return bad
        values = FieldValues(reader)
        for position in np.flatnonzero(~fits).tolist():
            try:
                values.read(indices[position : position + 1], spans.part(position, position + 1), verify=False)
            except SampleError as exc:
                bad.setdefault(position, exc)
        return bad

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        collated = {}
        for name, rows in self._moved(kept).items():
            how = self._collates[name]
            assert not isinstance(how, (PadCollate, PreferenceCollate))  # which are for token ids
            collated[name] = collate_lengths(rows.values, rows.counts, how, self._output)
        return collated

    def _moved(self, kept: NDArray[np.int64] | None) -> dict[str, Rows]:
        """Return the rows of each field as the pictures beside them were moved, of the samples at these positions."""
        rows = self._rows if kept is None else {name: each.at(kept) for name, each in self._rows.items()}
        frames, fields = self._pictures.frames(), [reader.field for reader in self._readers.values()]
        if frames is None:
            return rows
        if self._pictures.pieces is not None:
            assert isinstance(frames, Frames)  # members of a mixture have no mosaics
            return rows | self._pictures.pieces.move(fields, self._rows, frames)
        return move_targets(fields, rows, frames if kept is None else frames.part(kept))

    def cancel(self) -> None:
        """See PendingFields."""
        self._checked.cancel()


def known_rows(reader: RowReader, encoded: Mapping[str, EncodedValues]) -> Rows:
    """Return the rows of a field that can be read; samples whose values cannot have none, and are told of later."""
    values = encoded[reader.field.name]
    is_bad = ~reader.field.fits(values.spans.sizes)
    if values.unread is not None:
        is_bad |= values.unread != _native.OK
    return _joined(reader, values.spans, np.flatnonzero(is_bad).tolist())


def _joined(reader: RowReader, spans: Spans, bad: Collection[int]) -> Rows:
    """Return all rows of a field; bad samples have none."""
    field, sizes, views = reader.field, spans.sizes, spans.views()
    if bad:
        sizes = sizes.copy()
        sizes[list(bad)] = 0
        views = [view for position, view in enumerate(views) if position not in bad]
    shape = tuple(size for size in field.shape[1:] if size is not None)
    if field.unit_bytes == 0:
        return Rows(np.empty((0, *shape), field.dtype), np.zeros(len(sizes), np.int64))
    data = np.concatenate(views) if views else np.empty(0, np.uint8)
    return Rows(data.view(field.dtype).reshape(-1, *shape), sizes // field.unit_bytes)


def _without(rows: Rows, positions: Iterable[int]) -> Rows:
    """Return the rows without those of the samples at these positions."""
    keep = np.ones(len(rows.counts), np.bool_)
    keep[list(positions)] = False
    return rows.kept(keep[rows.samples])
