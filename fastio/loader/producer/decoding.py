"""One field of one batch by one native call: its rows begun, finished, and blanked; and the memory they are in."""

from __future__ import annotations

import logging
import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.codec import Geometry
from fastio.dataset.bfloat16 import array_of, tensor_of
from fastio.dataset.row_reader import RowReader, Shape, is_uniform
from fastio.dataset.undecoded import UndecodedRows
from fastio.errors import SampleError, SchemaError
from fastio.lazy import torch
from fastio.loader.output import Output
from fastio.loader.producer.chunks import EncodedValues
from fastio.loader.producer.pillow_threads import PendingRows, PillowThreads
from fastio.samplers.batches import Batches
from fastio.store.files.local import is_local
from fastio.store.index.elements import Elements
from fastio.store.index.store import unpacked_of
from fastio.store.jump_tables import PHOTO_SIDE, begin_jump_tables
from fastio.store.protocol import SampleStore
from fastio.transforms.canvas import RefusedPicturesError
from fastio.transforms.fused import KnownBoxes, PicturePass, Planned
from fastio.transforms.patches import Patchify
from fastio.types.placement import repeated
from fastio.types.spans import Spans, distinct

__all__ = [
    "BatchBuffers",
    "DecodedRows",
    "DecodingRows",
    "PillowFinish",
    "RowChunk",
    "RowDecoder",
    "RowField",
    "RowPart",
    "View",
    "pinned_memory",
    "without_sides",
]


_TENSORS = "iufb"  # kinds of dtypes that native code makes tensors of
_MOST_AXES = 7  # of a row
_LOOKED_AT = 4  # pictures of the first chunk of batches, for the tip on start points
_MOST_SHARE = 0.8  # of a picture, in the median: more is no crop

_looked_at: set[tuple[str, str]] = set()  # stores and fields that the process reads
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowField:
    """
    A field whose values become rows of one array, and how: with the transforms of ``fused`` (None: nothing beyond
    decoding), and with ``is_planar`` pictures as (C, H, W).

    Pictures may have several views: that of ``fused``, and those of ``others``. They become a list of tensors
    (``is_list``), or one, in which the rows of all views follow those of the first. Or they are cut into ``patches``,
    by ``fused``: the lines of one array, of each picture as many as it needs; a batch has at most ``most_patches``.

    ``by_fraction``: pictures may have other sizes than their leader, and get the same part of themselves.
    """

    reader: RowReader
    fused: PicturePass | None = None
    is_planar: bool = False
    others: tuple[PicturePass, ...] = ()
    is_list: bool = False
    patches: Patchify | None = None
    most_patches: int | None = None
    by_fraction: bool = False

    @property
    def has_views(self) -> bool:
        """Whether pictures have views, be it one in a list."""
        return bool(self.others) or self.is_list

    @property
    def steps(self) -> tuple[str, ...]:
        """What the transforms are called that the pass runs which decodes; those of views, view by view."""
        views = [fused.steps for fused in (self.fused, *self.others) if fused is not None]
        if self.has_views:
            return repeated(steps or ("whole picture",) for steps in views)
        return views[0] if views else ()

    def look_up(
        self,
        batches: Batches,
        values: EncodedValues,
        *,
        epoch: int,
        leader: NDArray[np.int64] | None = None,
        boxes: KnownBoxes | None = None,
    ) -> RowChunk:
        """
        Return what these samples, which are in memory, decode to.

        Pictures that follow others, which are stored in the shapes ``leader``, must have their sizes: those that have
        not count as pictures with bad headers, unless they are cropped by fraction. So do those that a transform
        refuses. ``boxes`` are those of the samples, for transforms that look at them.
        """
        reader, fused = self.reader, self.fused
        if fused is None and reader.row_shape is not None:
            return RowChunk(batches, values, None, reader.row_shape, epoch)
        shapes = stored = reader.shapes(batches.indices, values.spans)
        if reader.is_mask and fused is not None:
            shapes = stored = _with_channels(stored)
        planned = misfits = sizes = None
        reasons: dict[int, str] = {}
        others: tuple[View, ...] | None = ()
        if leader is not None and fused is not None and self.by_fraction:
            sizes = np.column_stack((leader[:, :2], stored[:, 2]))
        elif leader is not None and fused is not None:
            other = (stored[:, :2] != leader[:, :2]).any(axis=1)
            if other.any():
                misfits = other
                shapes = stored = without_sides(stored, misfits)
        while fused is not None:
            try:
                planned = self.plan(batches.ids, stored, sizes, epoch=epoch, boxes=boxes)
                shapes = planned.shapes
                others = self._other_views(batches.ids, stored, epoch=epoch)
                if not reader.is_mask:
                    _look_at_crops(reader.store, reader.field.name, values.spans, planned)
            except RefusedPicturesError as exc:  # plan the others
                reasons |= dict.fromkeys(np.flatnonzero(exc.refused).tolist(), exc.reason)
                misfits = exc.refused if misfits is None else misfits | exc.refused
                stored = without_sides(stored, exc.refused)
                sizes = None if sizes is None else without_sides(sizes, exc.refused)
                continue
            except SchemaError:
                shapes = np.zeros_like(stored)
            break
        shape = self.row_shape(shapes[0]) if _has_one_shape(shapes) and others is not None else None
        return RowChunk(batches, values, stored, shape, epoch, planned, misfits, reasons, others or (), boxes, sizes)

    def plan(
        self,
        ids: NDArray[np.int64],
        stored: NDArray[np.int64],
        sizes: NDArray[np.int64] | None,
        *,
        epoch: int,
        boxes: KnownBoxes | None = None,
    ) -> Planned:
        """Return the plan of pictures of the shapes ``stored``, made for pictures of the shapes ``sizes``, if given."""
        assert self.fused is not None
        planned = self.fused.plan(ids, stored if sizes is None else sizes, epoch=epoch, boxes=boxes)
        return planned if sizes is None else planned.scaled(stored)

    def led(self, planned: Planned, stored: NDArray[np.int64] | None) -> Planned:
        """Return the plan of masks of the shapes ``stored`` beside pictures with this plan."""
        return planned.scaled(stored) if self.by_fraction and stored is not None else planned

    def _other_views(self, ids: NDArray[np.int64], stored: NDArray[np.int64], *, epoch: int) -> tuple[View, ...] | None:
        """Return the plans of the other views, and their shapes; None if the rows of one differ in shape."""
        planned = [fused.plan(ids, stored, epoch=epoch) for fused in self.others]
        if not all(_has_one_shape(each.shapes) for each in planned):
            return None
        views = zip(self.others, planned, strict=True)
        return tuple(View(fused, each, self.row_shape(each.shapes[0])) for fused, each in views)

    def row_shape(self, shape: NDArray[np.int64] | Shape) -> Shape:
        """Return the shape of a row in memory for that of a picture or array."""
        height, *others = (int(size) for size in shape)
        return (others[1], height, others[0]) if self.is_planar else (height, *others)


@dataclass(frozen=True, slots=True)
class View:
    """The plan of one view of pictures, and the shape of its rows."""

    fused: PicturePass
    planned: Planned
    shape: Shape

    def part(self, part: slice) -> View:
        """Return that of some of the pictures."""
        return View(self.fused, self.planned.part(part), self.shape)

    def geometry(self, *, is_planar: bool) -> Geometry:
        """Return what native code needs to fill the rows."""
        channels = self.shape[0] if is_planar else self.shape[2]
        return self.fused.geometry(self.planned, channels=channels, is_planar=is_planar)


@dataclass(frozen=True, slots=True)
class RowChunk:
    """The values of one field for a few batches, looked up at once."""

    batches: Batches
    values: EncodedValues
    stored: NDArray[np.int64] | None  # the shape of each value before transforms; None if the field fixes it
    shape: Shape | None  # the row's shape, if all rows have the same one
    epoch: int
    # None with transforms: they fail for some sample, and each batch finds out for itself.
    planned: Planned | None = None
    misfits: NDArray[np.bool_] | None = None  # which pictures have another size than the leader, or are refused
    reasons: Mapping[int, str] = field(default_factory=dict)  # why transforms refuse a picture, by position
    others: tuple[View, ...] = ()  # views besides that of ``planned``, unless ``shape`` is None
    boxes: KnownBoxes | None = None  # of all samples, for transforms that look at them
    sizes: NDArray[np.int64] | None = None  # that plans are made for; None: ``stored``


@dataclass(slots=True)
class RowPart:
    """The values of one batch, a part of a chunk. (Not frozen: that would take longer to make.)"""

    chunk: RowChunk
    part: slice

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    @property
    def indices(self) -> NDArray[np.int64]:
        """The index of each sample."""
        return self.chunk.batches.indices[self.part]

    @property
    def spans(self) -> Spans:
        """Where their values lie."""
        return self.chunk.values.spans.at(self.part)


@dataclass(frozen=True, slots=True)
class PillowFinish:
    """The rest of the work for pictures that Pillow decodes: the transforms, also done by Pillow."""

    fused: PicturePass
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
        if self.planned.is_other is not None and self.planned.is_other[position]:
            return None  # Pillow would crop it as a picture of its own size
        row = self.fused.apply(self.planned, position, pixels, epoch=self.epoch)
        return row.transpose(2, 0, 1) if self.is_planar else row


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decodes one field of batches, on the threads and into the memory of one process."""

    field: RowField
    pool: _native.ThreadPool
    buffers: Sequence[BatchBuffers]  # one for each tensor
    pillow: PillowThreads
    verify: bool

    def output(self, chunk: RowChunk, *, leader: RowChunk | None = None) -> _native.RowsOutput | None:
        """
        Return what native code needs to make this field of a chunk's batches alone, with the rows that ``begin``
        gives; None if it cannot: if rows differ in shape, or if some values could not be read.
        """
        row_field, reader = self.field, self.field.reader
        if chunk.values.unread is not None or chunk.misfits is not None or row_field.patches is not None:
            return None
        shape, planned = chunk.shape, chunk.planned
        if reader.is_mask and leader is not None and leader.planned is not None:
            planned = row_field.led(leader.planned, chunk.stored)
        geometry = None
        if reader.is_mask and planned is not None:
            if not _has_one_shape(planned.shapes):
                return None
            has_channels = len(reader.field.shape) == 3
            shape = _mask_size(RowPart(chunk, slice(0, len(planned.shapes))), planned, has_channels=has_channels)
            geometry = _mask_geometry(planned)
        elif row_field.fused is not None and shape is not None:
            if planned is None:
                return None
            channels = shape[0] if row_field.is_planar else shape[2]
            geometry = row_field.fused.geometry(planned, channels=channels, is_planar=row_field.is_planar)
        is_known = reader.dtype.kind in _TENSORS and not (reader.is_mask and reader.dtype != np.uint8)
        if shape is None or not is_known or len(shape) > _MOST_AXES:
            return None
        work = reader.row_work(chunk.values.spans, verify=self.verify, geometry=geometry)
        if work is None:
            return None
        shapes = [shape]
        if row_field.has_views:
            work = _native.view_rows([work, *self._works(chunk.values.spans, chunk.others)])
            shapes += [view.shape for view in chunk.others if row_field.is_list]
        rows = int(np.diff(chunk.batches.cuts).max(initial=0)) * (1 if row_field.is_list else 1 + len(chunk.others))
        lent = [buffers.lent((rows, *each), reader.dtype) for buffers, each in zip(self.buffers, shapes, strict=True)]
        return _native.RowsOutput(
            work,
            shapes=shapes,
            dtype=reader.dtype,
            channels_last=len(shape) == 3 and (reader.is_picture or reader.is_mask) and not row_field.is_planar,
            rings=[ring for ring, _ in lent if ring is not None],
            pinned=lent[0][1],
            is_list=row_field.is_list,
        )

    def _works(self, spans: Spans, views: Sequence[View]) -> list[_native.RowWork]:
        """Return what makes each of these views."""
        geometries = [view.geometry(is_planar=self.field.is_planar) for view in views]
        works = [self.field.reader.row_work(spans, verify=self.verify, geometry=each) for each in geometries]
        return [work for work in works if work is not None]

    def begin(self, values: RowPart, *, leader: Planned | None = None) -> DecodingRows:
        """
        Start the rows of a batch. Raises SchemaError if they cannot have one shape, or if a transform fails.

        ``leader`` is the plan of the pictures that these values, if they are masks, lie beside.
        """
        row_field, reader = self.field, self.field.reader
        if row_field.patches is not None:
            return self._begin_patches(values, row_field.patches)
        is_led = reader.is_mask and leader is not None
        stored = values.chunk.stored
        part = None if stored is None else stored[values.part]
        shape, planned = ((), row_field.led(leader, part)) if is_led and leader is not None else self._plan(values)
        geometry = None
        if reader.is_mask and planned is not None:
            has_channels = len(reader.field.shape) == 3
            shape, geometry = _mask_size(values, planned, has_channels=has_channels), _mask_geometry(planned)
        elif row_field.fused is not None and planned is not None:
            channels = shape[0] if row_field.is_planar else shape[2]
            geometry = row_field.fused.geometry(planned, channels=channels, is_planar=row_field.is_planar)
        if row_field.has_views:
            return self._begin_views(values, shape, planned)
        count = len(values)
        rows, taken = self.buffers[0].take_rows((count, *shape), reader.dtype)
        status = np.empty(count, np.int32)
        job = reader.decode(values.spans, rows, status, pool=self.pool, verify=self.verify, geometry=geometry)
        return DecodingRows(self, values, planned, geometry, DecodedRows([rows], [taken]), status, job)

    def _begin_views(self, values: RowPart, shape: Shape, planned: Planned | None) -> DecodingRows:
        """Start the rows of all views. Raises SchemaError if those of one cannot have one shape."""
        row_field, reader, count = self.field, self.field.reader, len(values)
        assert row_field.fused is not None
        assert planned is not None
        views = [View(row_field.fused, planned, shape), *self._other_views(values)]
        if row_field.is_list:
            taken = [
                buffers.take_rows((count, *view.shape), reader.dtype)
                for buffers, view in zip(self.buffers, views, strict=True)
            ]
            rows, tensors = [each for each, _ in taken], [tensor for _, tensor in taken]
        else:
            joined, tensor = self.buffers[0].take_rows((count * len(views), *shape), reader.dtype)
            rows, tensors = list(joined.reshape(len(views), count, *shape)), [tensor]
        status = np.empty(count, np.int32)
        job = _native.fill_views(self._works(values.spans, views), rows, status, self.pool)
        return DecodingRows(self, values, planned, None, DecodedRows(rows, tensors), status, job, views)

    def _begin_patches(self, values: RowPart, patches: Patchify) -> DecodingRows:
        """
        Start the patches of a batch. Raises SchemaError if pictures differ in channels, if they have more patches than
        the sampler planned, or if a transform fails.
        """
        row_field, reader, planned = self.field, self.field.reader, self._planned(values)
        assert row_field.fused is not None
        assert planned is not None
        assert planned.grids is not None
        places, most = patches.places(planned.grids), row_field.most_patches
        if most is not None and places[-1] > most:
            raise SchemaError(
                f"{reader.store.path}: a batch of {places[-1]} patches, but its PackSampler plans at most {most}: plan "
                "with the loader's transforms: PackSampler(patches_of(dataset.sizes(), transforms), max_tokens=...)"
            )
        channels = self._channels(values, planned)
        geometry = row_field.fused.geometry(planned, channels=channels, is_planar=False)
        work = reader.row_work(values.spans, verify=self.verify, geometry=geometry)
        assert work is not None
        lines, taken = self.buffers[0].take_rows((int(places[-1]), patches.pixels, channels), reader.dtype)
        status = np.empty(len(values), np.int32)
        job = _native.fill_patches(work, lines, places, status, self.pool)
        memory = DecodedRows([np.split(lines, places[1:-1])], [taken])
        return DecodingRows(self, values, planned, geometry, memory, status, job)

    def _channels(self, values: RowPart, planned: Planned) -> int:
        """Return the channels of all pictures. Raises SchemaError if they differ."""
        channels = planned.shapes[:, 2]
        known = np.flatnonzero((planned.stored[:, :2] > 0).all(axis=1))
        if len(known) == 0:
            return int(channels.max(initial=0)) or 3
        other = known[channels[known] != channels[known[0]]]
        if len(other):
            store = self.field.reader.store
            keys = store.keys(values.indices[[known[0], other[0]]])
            raise SchemaError(
                f"{store.path}: pictures of different channels in one batch: {keys[0]!r} has {channels[known[0]]}, "
                f"{keys[1]!r} has {channels[other[0]]}: pass FastDataset(path, mode='RGB')"
            )
        return int(channels[known[0]])

    def _other_views(self, values: RowPart) -> list[View]:
        """Return the views besides the first. Raises SchemaError if the rows of one cannot have one shape."""
        chunk, part, row_field = values.chunk, values.part, self.field
        if chunk.shape is not None:
            return [view.part(part) for view in chunk.others]
        assert chunk.stored is not None
        views = []
        for fused in row_field.others:
            planned = fused.plan(chunk.batches.ids[part], chunk.stored[part], epoch=chunk.epoch)
            shape = row_field.row_shape(row_field.reader.common_shape(values.indices, planned.shapes))
            views.append(View(fused, planned, shape))
        return views

    def _plan(self, values: RowPart) -> tuple[Shape, Planned | None]:
        """
        Return the shape of a batch's rows and its plan. Raises SchemaError if shapes differ, or if a transform fails.
        """
        chunk, part, planned = values.chunk, values.part, self._planned(values)
        if chunk.shape is not None:
            return chunk.shape, planned
        assert chunk.stored is not None
        shapes = chunk.stored[part] if planned is None else planned.shapes
        return self.field.row_shape(self.field.reader.common_shape(values.indices, shapes)), planned

    def _planned(self, values: RowPart) -> Planned | None:
        """Return the plan of a batch; None without transforms. Raises SchemaError if one fails."""
        chunk, part, fused = values.chunk, values.part, self.field.fused
        if fused is None:
            return None
        if chunk.planned is not None:
            return chunk.planned.part(part)
        assert chunk.stored is not None
        boxes = chunk.boxes
        own = None if boxes is None else (boxes[0], boxes[1].at(np.arange(part.start, part.stop)))
        sizes = None if chunk.sizes is None else chunk.sizes[part]
        return self.field.plan(chunk.batches.ids[part], chunk.stored[part], sizes, epoch=chunk.epoch, boxes=own)


@dataclass(frozen=True, slots=True)
class _ViewsFinish:
    """As PillowFinish, for several views: the rows of all but the first go where they belong."""

    finishes: Sequence[PillowFinish]
    rows: Sequence[NDArray[Any]]

    def channels(self, position: int) -> int:
        """Return the channels as stored, or those of the dataset's mode."""
        return self.finishes[0].channels(position)

    def row(self, position: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """As PixelsToRow.row, of the first view."""
        made = [finish.row(position, pixels) for finish in self.finishes]
        for row, rows in zip(made[1:], self.rows[1:], strict=True):
            if row is None or row.shape != rows.shape[1:]:
                return None
            rows[position] = row
        return made[0]


@dataclass(frozen=True, slots=True)
class _PatchesFinish:
    """As PillowFinish, for rows of patches that may have more ``lines`` than a picture has patches."""

    finish: PillowFinish
    lines: Sequence[NDArray[Any]]

    def channels(self, position: int) -> int:
        """Return the channels as stored, or those of the dataset's mode."""
        return self.finish.channels(position)

    def row(self, position: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """As PixelsToRow.row."""
        patches, lines = self.finish.row(position, pixels), self.lines[position]
        if patches is None or patches.shape[1:] != lines.shape[1:] or len(patches) > len(lines):
            return None
        row: NDArray[np.uint8] = np.zeros_like(lines)
        row[: len(patches)] = patches
        return row


@dataclass(slots=True)
class DecodedRows:
    """
    The rows of a batch, ``(n, ...)`` in memory or an array for each, of each view if there are some, and in ``values``
    what a batch has of them: one for each array, or one over all.

    ``errors`` has the bad samples by position, ascending; ``kinds`` counts the pictures that Pillow decoded. (Not
    frozen: that would take longer to make.)
    """

    rows: Sequence[NDArray[Any] | Sequence[NDArray[Any]]]
    values: Sequence[Any]
    errors: dict[int, SampleError] = field(default_factory=dict)
    kinds: Counter[str] | None = None

    def blanked(self) -> Sequence[Any]:
        """Return all rows, with zeros in those of bad samples."""
        for rows in self.rows:
            if isinstance(rows, np.ndarray):
                rows[list(self.errors)] = np.zeros((), rows.dtype)  # no 0 alone: to NumPy, bfloat16 is no number
                continue
            for position in self.errors:
                rows[position][...] = 0
        return self.values

    def patches(
        self, patches: Patchify, grids: NDArray[np.int64], kept: NDArray[np.int64] | None, output: Output
    ) -> tuple[dict[str, Any], tuple[int, int]]:
        """
        Return what a batch has of pictures with these ``grids`` that were cut into patches: of all, with zeros for bad
        ones, or of those at the positions ``kept``; and how many patches these are, and the slots for them.
        """
        lines = self.blanked()[0] if kept is None else self.at(kept, output)[0]
        return patches.batch(lines, grids, output), (int(grids.prod(axis=1).sum()), len(lines))

    def at(self, kept: NDArray[np.int64], output: Output) -> list[Any]:
        """Return a copy of the rows at these positions; those that are an array each lie one behind the other."""
        rows = [
            rows[kept]
            if isinstance(rows, np.ndarray)
            else np.concatenate([rows[place] for place in kept] or [rows[0][:0]])
            for rows in self.rows
        ]
        rows = rows if len(self.values) == len(rows) else [np.concatenate(rows)]
        return list(map(output.of, rows))


class DecodingRows:
    """The rows of one batch that native threads decode, and Pillow's threads where they cannot."""

    __slots__ = (
        "_decoder",
        "_geometry",
        "_is_cancelled",
        "_job",
        "_memory",
        "_pending",
        "_status",
        "_undecoded",
        "_values",
        "_views",
        "planned",
    )

    def __init__(
        self,
        decoder: RowDecoder,
        values: RowPart,
        planned: Planned | None,
        geometry: Geometry | None,
        memory: DecodedRows,
        status: NDArray[np.int32],
        job: _native.Job,
        views: Sequence[View] = (),
    ) -> None:
        self._decoder = decoder
        self._values = values
        self.planned = planned
        self._geometry = geometry
        self._memory, self._views = memory, views
        self._status = status
        self._job = job
        self._is_cancelled = False
        self._undecoded: UndecodedRows | None = None
        self._pending: Future[PendingRows | None] | None = None
        if decoder.pillow.has_begun:  # most stores have no picture for Pillow: their batches need no other thread
            self._pending = decoder.pillow.call_later(self._settle)

    @property
    def shape(self) -> Shape:
        """The shape of the array that the rows are in, of the first view if there are several."""
        return np.asarray(self._memory.rows[0]).shape

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        self._is_cancelled = True  # before the job is: its status says nothing then
        self._job.cancel()
        if self._undecoded is not None:
            self._undecoded.cancel()

    def result(self) -> DecodedRows:
        """Wait for all rows."""
        pending = self._settle() if self._pending is None else self._pending.result()
        if pending is None:
            return self._memory
        settled, values = pending.result(), self._values
        errors = settled.errors
        for position in errors if values.chunk.reasons else ():
            reason = values.chunk.reasons.get(position + values.part.start)
            if reason is not None and self._status[position] in (_native.BAD_SHAPE, _native.UNSUPPORTED):
                errors[position] = self._decoder.field.reader.error(values.indices, values.spans, position, reason)
        return DecodedRows(self._memory.rows, self._memory.values, errors, settled.kinds)

    def _settle(self) -> PendingRows | None:
        """Wait for the native job, and begin to settle the rows that it did not fill; None if there are none."""
        self._job.wait()
        if self._is_cancelled:
            return None
        values = self._values
        if values.chunk.values.unread is not None:
            unread = values.chunk.values.unread[values.part]
            np.copyto(self._status, unread, where=unread != _native.OK)
        if values.chunk.misfits is not None:
            self._status[values.chunk.misfits[values.part] & (self._status == _native.OK)] = _native.BAD_SHAPE
        if not self._status.any():
            return None
        reader = self._decoder.field.reader
        self._undecoded = reader.undecoded(
            values.indices,
            values.spans,
            self._memory.rows[0],
            self._status,
            to_row=self._finish(),
            geometry=self._geometry,
        )
        return self._decoder.pillow.settle(self._undecoded)

    def _finish(self) -> PillowFinish | _PatchesFinish | _ViewsFinish | None:
        """Return what makes rows of what Pillow decodes; None if they are whole pictures, or for masks."""
        row_field, epoch = self._decoder.field, self._values.chunk.epoch
        if row_field.fused is None or self.planned is None or row_field.reader.is_mask:
            return None
        if not self._views:
            finish = PillowFinish(row_field.fused, self.planned, epoch, row_field.is_planar)
            rows = self._memory.rows[0]
            return finish if isinstance(rows, np.ndarray) else _PatchesFinish(finish, rows)
        finishes = [PillowFinish(view.fused, view.planned, epoch, row_field.is_planar) for view in self._views]
        return _ViewsFinish(finishes, [np.asarray(rows) for rows in self._memory.rows])


def _mask_size(values: RowPart, planned: Planned, *, has_channels: bool) -> Shape:
    """Return the shape of masks that follow a plan: its height and width, and the masks' own channels if they have."""
    sizes = planned.shapes[:, :2]
    known = sizes[sizes.all(axis=1)]
    height, width = known[0].tolist() if len(known) else (1, 1)
    stored = values.chunk.stored
    return (
        (height, width, int(stored[values.part, 2].max())) if has_channels and stored is not None else (height, width)
    )


def _mask_geometry(planned: Planned) -> Geometry:
    """Return what decodes masks by the plan of the pictures beside them."""
    fill = planned.mask_fill.to_bytes(2, "little")
    sizes = np.ascontiguousarray(planned.stored[:, :2], np.int32)
    return Geometry(planned.rows, fill=fill, sizes=sizes, colours=planned.moves)


def without_sides(shapes: NDArray[np.int64], which: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return shapes ``(n, 3)``, but 0x0 for some: those of pictures with bad headers, whose channels may be known."""
    return np.where(which[:, None] & [True, True, False], 0, shapes)


def _with_channels(shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return shapes of masks ``(n, 3)``, as plans are made of."""
    return shapes if shapes.shape[1] == 3 else np.column_stack((shapes, np.ones(len(shapes), np.int64)))


def _has_one_shape(shapes: NDArray[np.int64]) -> bool:
    """Whether all shapes are equal and none is that of a bad header."""
    return is_uniform(shapes) and bool(shapes[0].all())


def _look_at_crops(store: SampleStore, field: str, spans: Spans, planned: Planned) -> None:
    """
    Log one warning if transforms crop photos that would decode faster with start points: baseline JPEGs without any.

    ``spans`` are in memory. The first call for a store and field looks at a few of them, the others do nothing.
    """
    seen = (store.path, field)
    if seen in _looked_at:
        return
    _looked_at.add(seen)
    if store.format == "joined" or not is_local(store.path) or len(spans) == 0:
        return
    if isinstance(store, Elements):  # those of lists are made when they are packed, and not added later
        return
    if spans.intervals is not None and spans.intervals.sizes.any():
        return
    stored = planned.stored[:, :2]
    if np.median(stored.min(axis=1)) < PHOTO_SIDE or np.median(_shares(planned)) > _MOST_SHARE:
        return
    rows = distinct(np.linspace(0, len(spans) - 1, _LOOKED_AT).astype(np.int64))
    noted = begin_jump_tables(spans.at(rows))()[0].intervals
    if noted is None or 2 * np.count_nonzero(noted.sizes) < len(rows):
        return
    _LOG.warning(
        "%s: its photos have no start points, with which random crops of photos decode 1.3 to 1.4 times as fast: "
        "`%s` adds them beside it, once, and changes nothing else",
        store.path,
        shlex.join(["fastio", "index", store.path, *unpacked_of(store).words()]),
    )


def _shares(planned: Planned) -> NDArray[np.float64]:
    """What part of each picture transforms need."""
    rows = planned.rows.astype(np.float64)
    box, virtual, window = rows[:, 2] * rows[:, 3], rows[:, 4] * rows[:, 5], rows[:, 8] * rows[:, 9]
    area = np.maximum(planned.stored[:, :2].astype(np.float64).prod(axis=1), 1)
    shares: NDArray[np.float64] = box / area * window / np.maximum(virtual, 1)
    return shares


# Memory for batches: recycled when the last tensor over it dies, or pinned for copies to a GPU.


class BatchBuffers:
    """
    Lends uninitialised memory for batches, about ``count`` at a time.

    By default it comes from a ring, and returns there when the last tensor over it dies. Pinned memory comes from
    torch's own allocator instead: a copy to the device with ``non_blocking=True`` still reads a batch after its tensor
    has died, and only that allocator knows when the copy is over. A ring would lend the memory again too early.
    """

    def __init__(self, count: int, output: Output) -> None:
        self._count = count
        self._output = output
        self._ring = None if output.is_pinned else _native.BufferRing(count)
        self._largest_bytes = 0

    def lent(
        self, shape: Sequence[int], dtype: np.dtype[Any]
    ) -> tuple[_native.BufferRing | None, Callable[[tuple[int, ...]], torch.Tensor] | None]:
        """Return where native code takes pieces of up to this shape from: a ring, or what makes pinned tensors."""
        self._largest_bytes = max(self._largest_bytes, math.prod(shape) * dtype.itemsize)
        return self._ring, pinned_memory(dtype) if self._ring is None else None

    def take_rows(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Any]:
        """An array of this shape and dtype, and what a batch has over the same memory."""
        size_bytes = math.prod(shape) * dtype.itemsize
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if self._ring is None:
            pinned = pinned_memory(dtype)(tuple(shape))
            return array_of(pinned), pinned
        # Batches of several sizes share pieces: a fresh one costs a page fault for each 4 KiB.
        room = self._largest_bytes if size_bytes > self._largest_bytes // 2 else size_bytes
        rows = self._ring.acquire(room)[:size_bytes].view(dtype).reshape(shape)
        return rows, self._output.over(rows)

    @property
    def allocated_bytes(self) -> int:
        """Bytes lent and free. Pinned memory is torch's to count: here it is ``count`` times the largest piece."""
        return self._count * self._largest_bytes if self._ring is None else self._ring.allocated_bytes


def pinned_memory(dtype: np.dtype[Any]) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """Return what makes a tensor of a shape, uninitialised, in pinned memory of torch's own allocator."""
    kind = tensor_of(np.empty(0, dtype)).dtype
    return partial(torch.empty, dtype=kind, device="cpu", pin_memory=True)
