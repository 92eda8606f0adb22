"""One field of one batch by one native call: its rows begun, finished, and blanked; and the memory they are in."""

from __future__ import annotations

import logging
import math
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.codec import Geometry
from fastio.dataset.row_reader import RowReader, Shape, is_uniform
from fastio.dataset.undecoded import UndecodedRows
from fastio.errors import SampleError, SchemaError
from fastio.loader.producer.chunks import EncodedValues
from fastio.loader.producer.pillow_threads import PendingRows, PillowThreads
from fastio.samplers.batches import Batches
from fastio.store.files.local import is_local
from fastio.store.jump_tables import PHOTO_SIDE, begin_jump_tables
from fastio.store.protocol import SampleStore
from fastio.transforms.fused import Fused, Planned
from fastio.types.spans import Spans

__all__ = [
    "BatchBuffers",
    "DecodedRows",
    "DecodingRows",
    "PillowFinish",
    "RowChunk",
    "RowDecoder",
    "RowField",
    "RowPart",
    "pinned_memory",
]


_TENSORS = "iufb"  # kinds of dtypes that native code makes tensors of
_MOST_AXES = 7  # of a row
_SIDES = np.array([True, True, False])  # of a shape: height and width, not channels

_LOOKED_AT = 4  # pictures of the first chunk of batches, for the tip on start points
_MOST_SHARE = 0.8  # of a picture, in the median: more is no crop

_looked_at: set[tuple[str, str]] = set()  # stores and fields that the process reads
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowField:
    """
    A field whose values become rows of one array, and how: with the transforms of ``fused`` (None: nothing beyond
    decoding), and with ``is_planar`` pictures as (C, H, W).
    """

    reader: RowReader
    fused: Fused | None = None
    is_planar: bool = False

    def look_up(
        self, batches: Batches, values: EncodedValues, *, epoch: int, leader: RowChunk | None = None
    ) -> RowChunk:
        """
        Return what these samples, which are in memory, decode to.

        Pictures must have the sizes of the ``leader``, another field of the same samples, if there is one: those that
        have not count as pictures with bad headers.
        """
        reader, fused = self.reader, self.fused
        if fused is None and reader.row_shape is not None:
            return RowChunk(batches, values, None, reader.row_shape, epoch)
        shapes = stored = reader.shapes(batches.indices, values.spans)
        if reader.is_mask and fused is not None:
            shapes = stored = _with_channels(stored)
        planned = differs = None
        if leader is not None and leader.stored is not None and fused is not None:
            other = (stored[:, :2] != leader.stored[:, :2]).any(axis=1)
            if other.any():
                differs = other
                shapes = stored = np.where(differs[:, None] & _SIDES, 0, stored)
        if fused is not None:
            try:
                planned = fused.plan(batches.ids, stored, epoch=epoch)
                shapes = planned.shapes
                if not reader.is_mask:
                    _look_at_crops(reader.store, reader.field.name, values.spans, planned)
            except SchemaError:
                shapes = np.zeros_like(stored)
        shape = self.row_shape(shapes[0]) if _has_one_shape(shapes) else None
        return RowChunk(batches, values, stored, shape, epoch, planned, differs)

    def row_shape(self, shape: NDArray[np.int64] | Shape) -> Shape:
        """Return the shape of a row in memory for that of a picture or array."""
        height, *others = (int(size) for size in shape)
        return (others[1], height, others[0]) if self.is_planar else (height, *others)


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
    differs: NDArray[np.bool_] | None = None  # which pictures have another size than the leader, if one has


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

    fused: Fused
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
        row = self.fused.apply(self.planned, position, pixels, epoch=self.epoch)
        return row.transpose(2, 0, 1) if self.is_planar else row


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decodes one field of batches, on the threads and into the memory of one process."""

    field: RowField
    pool: _native.ThreadPool
    buffers: BatchBuffers
    pillow: PillowThreads
    verify: bool

    def output(self, chunk: RowChunk, *, leader: RowChunk | None = None) -> _native.RowsOutput | None:
        """
        Return what native code needs to make this field of a chunk's batches alone, with the rows that ``begin``
        gives; None if it cannot: if rows differ in shape, or if some values could not be read.
        """
        row_field, reader = self.field, self.field.reader
        if chunk.values.unread is not None or chunk.differs is not None:
            return None
        shape, planned = chunk.shape, chunk.planned
        if reader.is_mask and leader is not None:
            planned = leader.planned
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
        most = int(np.diff(chunk.batches.cuts).max(initial=0))
        ring, pinned = self.buffers.lent(most * math.prod(shape) * reader.dtype.itemsize, reader.dtype)
        return _native.RowsOutput(
            work,
            shape=shape,
            dtype=reader.dtype,
            channels_last=len(shape) == 3 and (reader.is_picture or reader.is_mask) and not row_field.is_planar,
            ring=ring,
            pinned=pinned,
        )

    def begin(self, values: RowPart, *, leader: Planned | None = None) -> DecodingRows:
        """
        Start the rows of a batch. Raises SchemaError if they cannot have one shape, or if a transform fails.

        ``leader`` is the plan of the pictures that these values, if they are masks, lie beside.
        """
        row_field, reader = self.field, self.field.reader
        is_led = reader.is_mask and leader is not None
        shape, planned = ((), leader) if is_led else self._plan(values)
        geometry = None
        if reader.is_mask and planned is not None:
            has_channels = len(reader.field.shape) == 3
            shape, geometry = _mask_size(values, planned, has_channels=has_channels), _mask_geometry(planned)
        elif row_field.fused is not None and planned is not None:
            channels = shape[0] if row_field.is_planar else shape[2]
            geometry = row_field.fused.geometry(planned, channels=channels, is_planar=row_field.is_planar)
        count = len(values)
        rows, tensor = self.buffers.take_rows((count, *shape), reader.dtype)
        status = np.empty(count, np.int32)
        job = reader.decode(values.spans, rows, status, pool=self.pool, verify=self.verify, geometry=geometry)
        return DecodingRows(self, values, planned, geometry, rows, tensor, status, job)

    def _plan(self, values: RowPart) -> tuple[Shape, Planned | None]:
        """
        Return the shape of a batch's rows and its plan. Raises SchemaError if shapes differ, or if a transform fails.
        """
        chunk, part, fused, planned = values.chunk, values.part, self.field.fused, None
        if fused is not None:
            assert chunk.stored is not None
            if chunk.planned is None:
                planned = fused.plan(chunk.batches.ids[part], chunk.stored[part], epoch=chunk.epoch)
            else:
                planned = chunk.planned.part(part)
        if chunk.shape is not None:
            return chunk.shape, planned
        assert chunk.stored is not None
        shapes = chunk.stored[part] if planned is None else planned.shapes
        return self.field.row_shape(self.field.reader.common_shape(values.indices, shapes)), planned


@dataclass(slots=True)
class DecodedRows:
    """
    The rows of a batch, ``(n, ...)`` in memory, and the tensor over them.

    ``errors`` has the bad samples by position, ascending; ``kinds`` counts the pictures that Pillow decoded. (Not
    frozen: that would take longer to make.)
    """

    rows: NDArray[Any]
    tensor: torch.Tensor
    errors: dict[int, SampleError] = field(default_factory=dict)
    kinds: Counter[str] | None = None

    def blanked(self) -> torch.Tensor:
        """Return all rows, with zeros in those of bad samples."""
        if self.errors:
            self.rows[list(self.errors)] = 0
        return self.tensor

    def at(self, kept: NDArray[np.int64], *, is_pinned: bool) -> torch.Tensor:
        """Return a copy of the rows at these positions."""
        tensor = torch.from_numpy(self.rows[kept])  # not by torch: see PlainProducer on forked children
        return tensor.pin_memory() if is_pinned else tensor


class DecodingRows:
    """The rows of one batch that native threads decode, and Pillow's threads where they cannot."""

    __slots__ = (
        "_decoder",
        "_geometry",
        "_is_cancelled",
        "_job",
        "_pending",
        "_rows",
        "_status",
        "_tensor",
        "_undecoded",
        "_values",
        "planned",
    )

    def __init__(
        self,
        decoder: RowDecoder,
        values: RowPart,
        planned: Planned | None,
        geometry: Geometry | None,
        rows: NDArray[Any],
        tensor: torch.Tensor,
        status: NDArray[np.int32],
        job: _native.Job,
    ) -> None:
        self._decoder = decoder
        self._values = values
        self.planned = planned
        self._geometry = geometry
        self._rows, self._tensor = rows, tensor
        self._status = status
        self._job = job
        self._is_cancelled = False
        self._undecoded: UndecodedRows | None = None
        self._pending: Future[PendingRows | None] | None = None
        if decoder.pillow.has_begun:  # most stores have no picture for Pillow: their batches need no other thread
            self._pending = decoder.pillow.call_later(self._settle)

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
            return DecodedRows(self._rows, self._tensor)
        settled = pending.result()
        return DecodedRows(self._rows, self._tensor, settled.errors, settled.kinds)

    def _settle(self) -> PendingRows | None:
        """Wait for the native job, and begin to settle the rows that it did not fill; None if there are none."""
        self._job.wait()
        if self._is_cancelled:
            return None
        values = self._values
        if values.chunk.values.unread is not None:
            unread = values.chunk.values.unread[values.part]
            np.copyto(self._status, unread, where=unread != _native.OK)
        if values.chunk.differs is not None:
            self._status[values.chunk.differs[values.part] & (self._status == _native.OK)] = _native.BAD_SHAPE
        if not self._status.any():
            return None
        row_field, to_row = self._decoder.field, None
        if row_field.fused is not None and self.planned is not None and not row_field.reader.is_mask:
            to_row = PillowFinish(row_field.fused, self.planned, values.chunk.epoch, row_field.is_planar)
        reader = row_field.reader
        self._undecoded = reader.undecoded(
            values.indices, values.spans, self._rows, self._status, to_row=to_row, geometry=self._geometry
        )
        return self._decoder.pillow.settle(self._undecoded)


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
    return Geometry(planned.rows, sizes=np.ascontiguousarray(planned.stored[:, :2], np.int32))


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
    if spans.intervals is not None and spans.intervals.sizes.any():
        return
    stored = planned.stored[:, :2]
    if np.median(stored.min(axis=1)) < PHOTO_SIDE or np.median(_shares(planned)) > _MOST_SHARE:
        return
    rows = np.unique(np.linspace(0, len(spans) - 1, _LOOKED_AT).astype(np.int64))
    noted = begin_jump_tables(spans.at(rows))()[0].intervals
    if noted is None or 2 * np.count_nonzero(noted.sizes) < len(rows):
        return
    _LOG.warning(
        "%s: its photos have no start points, with which random crops of photos decode 1.3 to 1.4 times as fast: "
        "`fastio index %s` adds them beside it, once, and changes nothing else",
        store.path,
        shlex.quote(store.path),
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

    def __init__(self, count: int, *, is_pinned: bool) -> None:
        self._count = count
        self._ring = None if is_pinned else _native.BufferRing(count)
        self._largest_bytes = 0

    def lent(
        self, size_bytes: int, dtype: np.dtype[Any]
    ) -> tuple[_native.BufferRing | None, Callable[[tuple[int, ...]], torch.Tensor] | None]:
        """Return where native code takes pieces of up to so many bytes from: a ring, or what makes pinned tensors."""
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        return self._ring, pinned_memory(dtype) if self._ring is None else None

    def take_rows(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[NDArray[Any], torch.Tensor]:
        """An array of this shape and dtype, and a tensor over the same memory."""
        size_bytes = math.prod(shape) * dtype.itemsize
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if self._ring is None:
            pinned = pinned_memory(dtype)(tuple(shape))
            return pinned.numpy(), pinned
        rows = self._ring.acquire(size_bytes).view(dtype).reshape(shape)
        return rows, torch.from_numpy(rows)

    @property
    def allocated_bytes(self) -> int:
        """Bytes lent and free. Pinned memory is torch's to count: here it is ``count`` times the largest piece."""
        return self._count * self._largest_bytes if self._ring is None else self._ring.allocated_bytes


def pinned_memory(dtype: np.dtype[Any]) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """Return what makes a tensor of a shape, uninitialised, in pinned memory of torch's own allocator."""
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return partial(torch.empty, dtype=kind, device="cpu", pin_memory=True)
