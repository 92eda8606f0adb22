"""The fields of a batch that become rows of arrays: pictures, masks and raw arrays, by one plan for each sample."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.row_reader import RowReader
from fastio.errors import SampleError, SchemaError
from fastio.loader.output import Output
from fastio.loader.producer.batch_part import BatchPart
from fastio.loader.producer.chunks import EncodedValues
from fastio.loader.producer.decoding import (
    BatchBuffers,
    DecodedRows,
    DecodingRows,
    RowChunk,
    RowDecoder,
    RowField,
    RowPart,
)
from fastio.loader.producer.mosaics import Mosaics
from fastio.loader.producer.pillow_threads import PillowCount
from fastio.loader.producer.values import known_rows
from fastio.loader.ranges import TRANSFORM, named_range
from fastio.samplers.batches import Batches
from fastio.transforms.arguments import as_fill
from fastio.transforms.batch.mosaic import Pieces
from fastio.transforms.frames import Frames, FramesByMember
from fastio.transforms.fused import Planned
from fastio.transforms.patches import Patchify
from fastio.transforms.plain import colour_of

__all__ = [
    "LedFields",
    "PendingAdded",
    "PendingRowFields",
    "RowFields",
    "check_raw",
    "laid_out",
    "sizes_in_words",
]


@dataclass(frozen=True, slots=True)
class LedFields:
    """Fields that become rows, and by name, which ``leaders`` they follow, if they do."""

    fields: Mapping[str, RowField]
    leaders: Mapping[str, str]

    def leader_of(self, name: str) -> str | None:
        """Return the other field that a field follows; None if there is none."""
        leader = self.leaders.get(name)
        return None if leader == name else leader

    @property
    def in_order(self) -> list[str]:
        """The names of the fields, leaders before those that follow them."""
        return sorted(self.fields, key=lambda name: self.leader_of(name) is not None)


@dataclass(frozen=True, slots=True)
class RowFields(LedFields):
    """
    The fields that become rows. The pictures, masks, boxes and points of a sample follow the plan that is made from the
    size of their leader, by name among ``leaders``; others are decoded for themselves. ``mosaics`` are then made of
    them, if there is something to make. ``boxes`` reads the field that transforms of a leader look at, if some do.
    """

    output: Output
    mosaics: Mosaics | None = None
    boxes: Mapping[str, RowReader] = field(default_factory=dict)

    def look_up(self, batches: Batches, values: Mapping[str, EncodedValues], *, epoch: int) -> dict[str, RowChunk]:
        """Return what these samples decode to, by field; leaders come first."""
        chunks: dict[str, RowChunk] = {}
        for name in self.in_order:
            boxes, leader = self.boxes.get(name), self.leader_of(name)
            known = None if boxes is None else (boxes.field, known_rows(boxes, values))
            led = None if leader is None else chunks[leader].stored
            chunks[name] = self.fields[name].look_up(batches, values[name], epoch=epoch, leader=led, boxes=known)
        return chunks


class PendingRowFields:
    """The rows of a batch in progress; see PendingFields. Raises SchemaError for rows that do not fit together."""

    def __init__(
        self,
        fields: RowFields,
        part: BatchPart,
        decoders: Mapping[str, RowDecoder],
        canvases: Mapping[str, BatchBuffers],
        pillow_count: PillowCount,
    ) -> None:
        self._fields = fields
        self._canvases = canvases
        self._part = part
        self._pillow_count = pillow_count
        self._decoding: dict[str, DecodingRows] = {}
        self._decoded: dict[str, DecodedRows] = {}
        self._planned: dict[str, Planned] = {}  # by leader
        self._frames: dict[str, Frames | FramesByMember] = {}  # by leader
        self.pieces: Pieces | None = None  # that mosaics are made of, once ``lay_out`` has decided
        self.counts = 0, 0  # patches of the batch, and its slots for them
        try:
            for name, chunk in part.rows.items():
                leader = fields.leader_of(name)
                led = self._planned.get(leader or "")
                check_raw(fields.fields[name], part.indices, leader, led)
                self._decoding[name] = decoders[name].begin(RowPart(chunk, part.part), leader=led)
                planned = self._decoding[name].planned
                if planned is not None and fields.leaders.get(name) == name:
                    self._planned[name] = planned
        except SchemaError:
            self.cancel()
            raise

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        errors: dict[int, SampleError] = {}
        for name, decoding in self._decoding.items():
            rows = self._decoded[name] = decoding.result()
            leader = self._fields.leader_of(name)
            planned = self._planned.get(leader or "")
            if rows.errors and leader is not None and planned is not None:
                values = RowPart(self._part.rows[name], self._part.part)
                rows.errors = sizes_in_words(self._fields.fields[name], values, rows.errors, leader, planned)
            for position, error in rows.errors.items():
                errors.setdefault(position, error)
        self._count_pictures()
        return errors

    def _count_pictures(self) -> None:
        """Count the pictures and masks of the batch, and those of them that Pillow decoded."""
        fields = self._fields.fields
        pictures = [name for name in self._decoded if fields[name].reader.field.traits.is_picture]
        for name in pictures:
            is_last = self._part.is_last and name == pictures[-1]
            self._pillow_count.add(len(self._part), self._decoded[name].kinds, is_last=is_last)

    def planned(self, leader: str | None) -> Planned | None:
        """Return the plan of the pictures of a leader; None if they are not moved."""
        return self._planned.get(leader or "")

    def frames(self, leader: str | None) -> Frames | FramesByMember | None:
        """Return where the pictures of a leader are moved; None if they are not."""
        fused, planned = (
            (None, None) if leader is None else (self._fields.fields[leader].fused, self._planned.get(leader))
        )
        if leader is None or fused is None or planned is None:
            return None
        if leader not in self._frames:
            self._frames[leader] = fused.frames(planned, epoch=self._part.epoch)
        return self._frames[leader]

    def led(self, leader: str | None) -> LedPictures:
        """Return what boxes and points know of the pictures of a leader, or of none."""
        return LedPictures(self, leader)

    def lay_out(self, bad: Iterable[int], kept: NDArray[np.int64] | None) -> None:
        """
        Decide of which pieces mosaics are made, if this batch has some: of the samples at these positions, or of all
        (None), of which the ``bad`` ones give none.
        """
        mosaics, leader = self._fields.mosaics, next(iter(self._fields.leaders.values()), None)
        if mosaics is None or leader is None:
            return
        positions = np.arange(len(self._part)) if kept is None else kept
        rows = np.asarray(self._decoded[leader].rows[0])
        first = 2 if self._fields.fields[leader].is_planar else 1
        height, width = rows.shape[first : first + 2]
        ids = self._part.chunk.batches.ids[self._part.part]
        self.pieces = mosaics.pieces(ids, positions, (height, width), list(bad), epoch=self._part.epoch)

    def blanks(self, failed: Collection[int]) -> list[Collection[int]]:
        """
        Return for each field of pictures the positions of its blanks in a batch that keeps bad samples; functions have
        ``failed`` for some of these.
        """
        names = [name for name, field in self._fields.fields.items() if field.reader.is_picture]
        return [{*failed, *(() if self.pieces else self._decoded[name].errors)} for name in names]

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        self.counts = 0, 0
        return {name: self._value(name, rows, kept) for name, rows in self._decoded.items()}

    def _value(self, name: str, rows: DecodedRows, kept: NDArray[np.int64] | None) -> Any:
        """Return the values of a field, or the list of those of its views."""
        field, output = self._fields.fields[name], self._fields.output
        if field.patches is not None:
            return self._patches(field.patches, name, rows, kept)
        if self.pieces is not None and name in self._canvases:
            return laid_out(field, self._mosaics(name, np.asarray(rows.rows[0]), self.pieces), output)
        values = rows.blanked() if kept is None else rows.at(kept, output)
        values = [laid_out(field, each, output) for each in values]
        return values if field.is_list else values[0]

    def _patches(
        self, patches: Patchify, name: str, rows: DecodedRows, kept: NDArray[np.int64] | None
    ) -> dict[str, Any]:
        """Return what a batch has of pictures that were cut into patches."""
        grids = self.grids(name)
        batch, counts = rows.patches(patches, grids if kept is None else grids[kept], kept, self._fields.output)
        self.counts = self.counts[0] + counts[0], self.counts[1] + counts[1]
        return batch

    def grids(self, name: str) -> NDArray[np.int64]:
        """Return rows and columns of patches of a field's pictures, ``(B, 2)``; zeros if they were not cut."""
        planned = self._decoding[name].planned
        if planned is None or planned.grids is None:
            return np.zeros((len(self._part), 2), np.int64)
        return planned.grids

    def _mosaics(self, name: str, rows: NDArray[Any], pieces: Pieces) -> Any:
        """Return the mosaics of a field of pictures or masks."""
        field, mosaics = self._fields.fields[name], self._fields.mosaics
        assert mosaics is not None
        shape = (rows.shape[1], pieces.side, pieces.side) if field.is_planar else (pieces.side, pieces.side)
        canvases, values = self._canvases[name].take_rows(
            (len(pieces), *shape) if field.is_planar else (len(pieces), *shape, *rows.shape[3:]), rows.dtype
        )
        if field.is_planar:
            rows, canvases = np.moveaxis(rows, 1, -1), np.moveaxis(canvases, 1, -1)
        is_mask, mosaic = field.reader.is_mask, mosaics.mosaic
        fill = mosaic.mask_fill if is_mask else colour_of(as_fill(mosaic.fill), rows.shape[-1])
        with named_range(TRANSFORM):
            pieces.paste(rows, canvases, fill)
        return values

    def cancel(self) -> None:
        """See PendingFields."""
        for decoding in self._decoding.values():
            decoding.cancel()


def check_raw(field: RowField, indices: NDArray[np.int64], leader: str | None, planned: Planned | None) -> None:
    """
    Raise SchemaError for raw pictures whose size is not that of those that they follow, which have this plan: native
    code takes one size for all.
    """
    reader = field.reader
    if planned is None or field.by_fraction or not reader.field.is_raw_picture or reader.row_shape is None:
        return
    stored = planned.stored[:, :2]
    others = np.flatnonzero(stored.all(axis=1) & (stored != reader.row_shape[:2]).any(axis=1))
    if len(others):
        index, size = int(indices[others[0]]), stored[others[0]]
        raise SchemaError(
            f"{reader.store.path}: pictures in {reader.field.name!r} are {reader.row_shape[0]}x{reader.row_shape[1]}, "
            f"but {leader!r} of {reader.store.keys([index])[0]!r} {size[0]}x{size[1]} (height x width); pictures that "
            "are transformed together must have one size: leave one out by the dataset's fields="
        )


def sizes_in_words(
    field: RowField, values: RowPart, errors: Mapping[int, SampleError], leader: str, planned: Planned
) -> dict[int, SampleError]:
    """Return the errors of pictures by position, which name both sizes where one differs from its leader's."""
    reader = field.reader
    if not reader.is_picture or field.by_fraction:
        return dict(errors)
    found: dict[int, SampleError] = {}
    for position, error in errors.items():
        own = reader.shapes(values.indices[[position]], values.spans.part(position, position + 1))[0, :2]
        expected = planned.stored[position, :2]
        is_other = bool(own.all() and expected.all() and (own != expected).any())
        found[position] = error
        if is_other:
            words = (
                f"is {own[0]}x{own[1]}, but {leader!r} of the same sample {expected[0]}x{expected[1]} (height x "
                "width); pictures that are transformed together must have one size"
            )
            found[position] = reader.error(values.indices, values.spans, position, words)
    return found


@dataclass(frozen=True, slots=True)
class LedPictures:
    """
    The pictures of one ``leader``, among the rows of a batch, for what lies in them, see MovedPictures, and for
    elements of lists that follow them, see LeadingPictures.
    """

    rows: PendingRowFields
    leader: str | None

    @property
    def pieces(self) -> Pieces | None:
        """As MovedPictures.pieces."""
        return self.rows.pieces

    def frames(self) -> Frames | FramesByMember | None:
        """As MovedPictures.frames."""
        return self.rows.frames(self.leader)

    @property
    def size(self) -> tuple[int, int]:
        """As LeadingPictures.size."""
        planned = self.rows.planned(self.leader)
        known = [] if planned is None else planned.shapes[planned.shapes.all(axis=1), :2].tolist()
        return tuple(known[0]) if known else (1, 1)

    def planned_at(self, positions: NDArray[np.int64]) -> Planned | None:
        """As LeadingPictures.planned_at."""
        planned = self.rows.planned(self.leader)
        return None if planned is None else planned.part(positions)


def laid_out(field: RowField, values: Any, output: Output) -> Any:
    """Return the rows of a field as batches have them."""
    if field.reader.is_mask and field.reader.dtype != np.uint8:
        values = output.of(np.asarray(values).astype(np.int32))  # torch computes little with uint16
    if output is Output.ARRAYS:
        values = output.of(values)  # bfloat16 as float32
    has_channels = field.reader.is_picture or field.reader.is_mask
    is_channels_last = values.ndim == 4 and has_channels and not field.is_planar
    # (B, H, W, C) in memory becomes (B, C, H, W) in channels_last: a view, not a copy.
    return output.channels_first(values) if is_channels_last else values


# The fields that KeepGeometry and KeepCrop add to a batch: where the pictures of its samples were moved.


class PendingAdded:
    """
    Fields that transforms add, from where they move pictures; zeros for a sample whose picture has a bad header. See
    PendingFields.
    """

    def __init__(self, pictures: LedPictures, count: int, output: Output) -> None:
        self._pictures = pictures
        self._count = count
        self._output = output

    def errors(self) -> dict[int, SampleError]:
        """Return none: the picture's field has them."""
        return {}

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        frames = self._pictures.frames()
        assert frames is not None
        added = frames.added(self._count)
        return {name: self._output.of(each if kept is None else each[kept]) for name, each in added.items()}

    def cancel(self) -> None:
        """Do nothing: nothing was begun."""
