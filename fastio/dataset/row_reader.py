"""RowReader: decodes encoded values of a store into rows of an array, and says what is wrong with each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import CODECS, describe_status
from fastio.codec.codec import Geometry
from fastio.codec.copied import RawCodec
from fastio.codec.image import ImageCodec
from fastio.codec.mask import MaskCodec, misfits
from fastio.codec.pillow import is_refused, pixel_limit, refusal, warn_of_large
from fastio.dataset.undecoded import DecodedBatch, MaskRows, PixelsToRow, UndecodedRows
from fastio.errors import SampleError, SchemaError, UnequalSizesError
from fastio.store.files.fetch import fetch_pieces
from fastio.store.files.local import is_local
from fastio.store.index.elements import Elements
from fastio.store.protocol import SampleStore
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["RowReader", "Shape", "is_uniform", "label_values", "one_by_one"]

_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}

Shape = tuple[int, ...]

# Larger values in an index or header are not believed: memory for them would be requested.
_MOST_CHANNELS = 4
_MOST_SIDE = 1 << 20  # pixels; the native core plans no larger picture

_HEAD_BYTES = 1 << 14  # of a picture, in which nearly all headers lie


class RowReader:
    """
    Decodes one payload field of a store into the rows of an array.

    A row is a picture ``(H, W, C)`` uint8 with the channels of ``mode`` ("L", "RGB", "RGBA", or None: as stored); a
    mask ``(H, W)``, or ``(H, W, C)`` if its field has three axes, of the field's dtype (uint8 or uint16); or a raw
    array of the field's dtype and shape. Masks and raw arrays come as stored whatever the mode; a 2-D array of bytes
    is a picture of one channel. Holds no memory and no threads of its own.

    ``is_picture`` says that rows have channels last, ``(H, W, C)`` uint8; it is false for masks (``is_mask``).
    """

    def __init__(self, store: SampleStore, field: str, *, mode: str | None) -> None:
        if mode is not None and mode not in _CHANNELS:
            raise ValueError(f"mode={mode!r}: expected one of {', '.join(map(repr, _CHANNELS))} or None (as stored)")
        self.store = store
        self.field = store.schema[field]
        if self.field.codec not in CODECS:
            raise SchemaError(
                f"{store.path}: field {field!r} has the codec {self.field.codec!r}, but this fastio only knows "
                f"{', '.join(map(repr, CODECS))}: upgrade fastio"
            )
        self.codec = CODECS[self.field.codec]
        self.mode = mode
        self.has_rows = self.field.traits.has_rows
        self.is_text = self.field.traits.is_text
        self.is_mask = self.field.traits.is_mask
        is_encoded_picture = self.field.traits.is_picture and not self.is_mask
        self.dtype = np.dtype(np.uint8) if is_encoded_picture else np.dtype(self.field.dtype)
        self.is_picture = is_encoded_picture or self.field.is_raw_picture
        # None: differs between samples
        self.row_shape = _fixed_shape(self.field) if self.field.traits.has_fixed_shape else None
        self._shapes = store.shapes(field) if self.field.traits.is_picture else None

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the sizes that the pickled store provides again; probed sizes are included."""
        can_be_had = self._shapes is not None and not self._shapes.flags.writeable
        return {name: value for name, value in self.__dict__.items() if name != "_shapes" or not can_be_had}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_shapes" not in state:
            self._shapes = self.store.shapes(self.field.name)

    def shapes(self, indices: NDArray[np.int64], spans: Spans) -> NDArray[np.int64]:
        """
        Return the shape of each row, ``(n, ndim)``; zeros for a picture that is too large or has a bad header.

        If a store has no sizes (foreign tar shards) or impossible ones, its pictures are probed once and the sizes
        remembered. Sizes above half the limit cause Pillow's DecompressionBombWarning (see ``codec.pixel_limit``).
        """
        if self._shapes is None:
            row = np.array(self.row_shape, np.int64)
            # Read-only, and broadcast from one row: see is_uniform.
            return np.broadcast_to(row, (len(indices), len(row)))
        shapes = self._shapes[indices]
        limit = pixel_limit()
        if not _are_possible(shapes, limit):
            shapes = self._probe(indices, spans, shapes)
        if limit is not None:
            self._warn_of_large(indices, shapes, limit // 2)
        return self._as_mode(shapes)

    def all_shapes(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """As ``shapes``, of samples that are not in memory: of those without sizes in the index, heads are fetched."""
        spans = self.store.spans(self.field.name, indices, checksums=False)
        if self._shapes is not None and not _are_possible(self._shapes[indices], pixel_limit()):
            self._look_at_heads(indices, spans)
        return self.shapes(indices, spans)

    def sizes(self) -> NDArray[np.int64]:
        """Return height and width of all rows, ``(len(store), 2)``, as ``all_shapes`` finds them."""
        if self._shapes is not None and _are_possible(self._shapes, pixel_limit()):
            return self._shapes[:, :2].astype(np.int64)
        return np.array(self.all_shapes(np.arange(len(self.store), dtype=np.int64))[:, :2])

    def _look_at_heads(self, indices: NDArray[np.int64], spans: Spans) -> None:
        """
        Remember the sizes of pictures whose index has none: from their first bytes, or where a header is longer, from
        the whole. What stays unknown is bad, and has zeros.
        """
        assert self._shapes is not None
        for most in (_HEAD_BYTES, None):
            missing = np.flatnonzero(~_possible(self._shapes[indices]))
            if len(missing) == 0:
                return
            some = spans.at(missing)
            heads = replace(some, sizes=some.sizes if most is None else np.minimum(some.sizes, most), intervals=None)
            for part, values, _ in fetch_pieces(self.store.files, heads):
                rows = indices[missing[part]]
                self._probe(rows, values, self._shapes[rows])

    def _warn_of_large(self, indices: NDArray[np.int64], shapes: NDArray[np.int32], limit: int) -> None:
        if len(shapes) == 0 or int(shapes[:, 0].max()) * int(shapes[:, 1].max()) <= limit:
            return
        for position in np.flatnonzero(shapes[:, 0].astype(np.int64) * shapes[:, 1] > limit):
            name = f"{self.store.path}[{indices[position]}] ({self.store.keys(indices[[position]])[0]!r})"
            warn_of_large(name, *shapes[position, :2].tolist())

    def _probe(self, indices: NDArray[np.int64], spans: Spans, shapes: NDArray[np.int32]) -> NDArray[np.int32]:
        assert self._shapes is not None
        missing = np.flatnonzero(~_possible(shapes))
        shapes[missing] = 0
        headers = self.codec.probe(spans.at(missing))
        # A TIFF may have more channels: of the three modes, RGBA keeps most.
        headers.channels[:] = headers.channels.clip(1, _MOST_CHANNELS)
        readable = np.isin(headers.status, (_native.OK, _native.UNSUPPORTED)) & _possible(headers.shapes)
        shapes[missing[readable]] = headers.shapes[readable]
        if not self._shapes.flags.writeable:
            self._shapes = self._shapes.copy()
        self._shapes[indices[missing]] = 0  # so that no thread sees half of an impossible size and half of this one
        self._shapes[indices[missing]] = shapes[missing]
        return shapes

    def _as_mode(self, shapes: NDArray[np.int32]) -> NDArray[np.int64]:
        """
        Return the shapes of the rows: with the channels of the mode, or 1, 3 or 4 as stored; of masks, with those that
        their field says, and none if it has two axes.
        """
        rows = shapes.astype(np.int64)
        if self.is_mask:
            if len(self.field.shape) == 2:
                return rows[:, :2]
            rows[:, 2] = self.field.shape[2] or rows[:, 2]
            return rows
        if self.mode is not None:
            rows[:, 2] = _CHANNELS[self.mode]
        else:
            rows[rows[:, 2] == 2, 2] = 4  # grey with alpha: of the three modes, only RGBA keeps both
        return rows

    def common_shape(self, indices: NDArray[np.int64], shapes: NDArray[np.int64]) -> Shape:
        """
        Return the common shape of a batch's rows. Raises UnequalSizesError that names two samples if shapes differ.

        Samples with a bad header, or that a transform refuses, take the shape of the others: decoding reports what is
        wrong with them.
        """
        may_lack = self._shapes is not None or self.is_picture  # raw ones lack a size where a transform refuses them
        known = np.flatnonzero(shapes[:, :2].all(axis=1)) if may_lack else np.arange(len(shapes))
        if len(known) == 0:
            return (1, 1, *(int(channels) or 3 for channels in shapes[0, 2:]))
        first = shapes[known[0]]
        other = known[(shapes[known] != first).any(axis=1)]
        if len(other) == 0:
            return tuple(first.tolist())
        two = indices[[known[0], other[0]]]
        keys = [f"{key!r}{self._place(int(index))}" for key, index in zip(self.store.keys(two), two, strict=True)]
        sizes = ["x".join(map(str, shapes[position].tolist())) for position in (known[0], other[0])]
        what, remedy = ("masks", "") if self.is_mask else ("pictures", ", or pack with --resize HxW")
        advice = (
            f"pass transforms that make them equal, such as RandomResizedCrop(224) (in commands --crop 224){remedy}"
        )
        if self.is_picture and not (shapes[other, :2] != first[:2]).any():
            advice = "only channels differ: pass FastDataset(path, mode='RGB'), which makes them equal"
        raise UnequalSizesError(
            f"{self.store.path}: {what} of different sizes in one batch: {keys[0]} is {sizes[0]}, "
            f"{keys[1]} is {sizes[1]} (height x width{' x channels' if len(first) == 3 else ''})",
            advice,
        )

    def _place(self, index: int) -> str:
        """Return which of its sample's elements a value of a list is, in words; "" for others."""
        return self.store.place(index)[1] if isinstance(self.store, Elements) else ""

    def read(
        self, indices: NDArray[np.int64], spans: Spans, shapes: NDArray[np.int64], *, verify: bool
    ) -> NDArray[Any]:
        """Decode rows of equal shape at once. Raises SampleError for the first bad one."""
        shape = self.common_shape(indices, shapes)
        rows = np.empty((len(indices), *shape), self.dtype)
        status = np.empty(len(indices), np.int32)
        self.decode(spans, rows, status, pool=None, verify=verify).wait()
        if status.any():  # seldom, and settling costs as much as a small picture
            for error in self.settle(indices, spans, rows, status).values():
                raise error
        return rows

    def blank(self, indices: NDArray[np.int64], spans: Spans) -> NDArray[Any]:
        """Return one row of zeros of the sample's own shape. Raises SampleError if the shape is unknown."""
        shape = self.shapes(indices, spans)[0]
        if not self.has_rows or (self.field.traits.is_picture and not shape[:2].all()):
            what = "an empty mask" if self.is_mask else "a black picture"
            words = f"cannot be replaced by {what} because its size is unknown: use on_error='skip'"
            raise self.error(indices, spans, 0, words)
        return np.zeros(tuple(shape.tolist()), self.dtype)

    def encoded(self, indices: NDArray[np.int64], spans: Spans, position: int, *, verify: bool) -> bytes:
        """Return the bytes of one value as stored, for a field that has no rows."""
        value = spans.view(position)
        if verify and spans.checksums is not None and _native.crc32(value) != int(spans.checksums[position]):
            raise self.error(indices, spans, position, describe_status(_native.BAD_CHECKSUM))
        return value.tobytes()

    def decode(
        self,
        spans: Spans,
        rows: NDArray[Any],
        status: NDArray[np.int32],
        *,
        pool: _native.ThreadPool | None,
        verify: bool,
        geometry: Geometry | None = None,
    ) -> _native.Job:
        """
        Like ``Codec.decode``, into rows of the common shape and of ``dtype``.

        For masks with a geometry see ``MaskCodec.decode``; ``rows`` then have the size that the plan gives.
        """
        return self.codec.decode(spans, rows, status, pool=pool, verify=verify, geometry=geometry)

    def row_work(self, spans: Spans, *, verify: bool, geometry: Geometry | None) -> _native.RowWork | None:
        """Return what ``decode`` does, for batches that native code makes; None if the codec cannot say it."""
        if isinstance(self.codec, (ImageCodec, MaskCodec, RawCodec)):
            return self.codec.rows(spans, verify=verify, geometry=geometry)
        return None

    def undecoded(
        self,
        indices: NDArray[np.int64],
        spans: Spans,
        rows: NDArray[Any] | Sequence[NDArray[Any]],
        status: NDArray[np.int32],
        *,
        to_row: PixelsToRow | None = None,
        geometry: Geometry | None = None,
    ) -> UndecodedRows:
        """
        Return the rows that native code did not fill, for threads to settle.

        For pictures ``to_row`` applies the transforms; masks need only the ``geometry`` that ``decode`` had.
        """
        return UndecodedRows(
            DecodedBatch(spans, rows, status),
            error=partial(self.error, indices, spans),
            refusal=partial(self._refusal, spans, geometry) if self.field.traits.is_picture else None,
            to_row=MaskRows.of(geometry, rows) if self.is_mask and isinstance(rows, np.ndarray) else to_row,
        )

    def _refusal(self, spans: Spans, geometry: Geometry | None, position: int) -> str | None:
        """Return why a picture or mask may not be decoded, or does not fit its row, if its header shows that."""
        headers = self.codec.probe(spans.part(position, position + 1))
        if is_refused(headers.sizes)[0]:
            return f"it {refusal(headers[0].height, headers[0].width)}"
        if not self.is_mask or headers[0].status != _native.OK:
            return None
        words = misfits(headers, self.field).get(0)
        if words is None and geometry is not None and geometry.sizes is not None:
            size, expected = headers.sizes[0].tolist(), geometry.sizes[position].tolist()
            if size != expected:
                words = f"is {size[0]}x{size[1]}, but its picture {expected[0]}x{expected[1]} (height x width)"
        return None if words is None else f"it {words}"

    def settle(
        self,
        indices: NDArray[np.int64],
        spans: Spans,
        rows: NDArray[Any],
        status: NDArray[np.int32],
        *,
        to_row: PixelsToRow | None = None,
        geometry: Geometry | None = None,
    ) -> dict[int, SampleError]:
        """Settle the rows that native code did not fill; returns the errors by position in the batch, ascending."""
        undecoded = self.undecoded(indices, spans, rows, status, to_row=to_row, geometry=geometry)
        undecoded.settle()
        return undecoded.result().errors

    def unreadable(self, indices: NDArray[np.int64], spans: Spans, status: NDArray[np.int32]) -> SampleError:
        """Return what is wrong with the first of these samples whose status is not OK."""
        position = int(np.flatnonzero(status)[0])
        return self.error(indices, spans, position, describe_status(int(status[position])))

    def error(self, indices: NDArray[np.int64], spans: Spans, position: int, words: str) -> SampleError:
        """Return the error of one sample; to the words it adds why the value could not be read, if that is known."""
        index = int(indices[position])
        key = self.store.keys([index])[0]
        sample = self.store.place(index)[0] if isinstance(self.store, Elements) else index
        which = self._place(index)
        # Fetched spans have other numbers of shards, and nothing else tells where a failed one lies.
        stored = self.store.spans(self.field.name, np.array([index]), checksums=False)
        path = str(self.store.shard_paths[int(stored.shard[0])])
        reason = self.store.files.failure(stored)
        if reason is None and words == describe_status(_native.BAD_CHECKSUM):
            if is_local(path):
                reason = _what_mends(path)
            else:  # what arrives damaged has a reason
                words = "its bytes were right when they arrived, but changed in memory or in cache_dir: try again"
        words = words if reason is None else f"{words}: {reason}"
        return SampleError(
            f"{path}[{sample}] ({key!r}), field {self.field.name!r}{which}: {words}",
            path=path,
            index=sample,
            key=key,
            field=self.field.name,
        )


def _what_mends(path: str) -> str | None:
    """Return what mends a file of this machine, if it is a copy that ``fastio stage`` made."""
    from fastio.store.staging.record import mending_command

    command = mending_command(path)
    return None if command is None else f"{command} mends this copy"


def _are_possible(shapes: NDArray[np.int32], limit: int | None) -> bool:
    """Return whether all shapes are surely possible for pictures; takes two passes."""
    if len(shapes) == 0:
        return True
    height, width, channels = shapes.max(axis=0).tolist()
    is_small = max(height, width) <= _MOST_SIDE and (limit is None or height * width <= limit)
    return bool(shapes.min() > 0) and channels <= _MOST_CHANNELS and is_small


def _possible(shapes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which shapes are possible for pictures; zeros mean unknown."""
    is_small = (shapes[:, :2] <= _MOST_SIDE).all(axis=1) & (shapes[:, 2] <= _MOST_CHANNELS)
    possible: NDArray[np.bool_] = (shapes > 0).all(axis=1) & is_small & ~is_refused(shapes)
    return possible


def _fixed_shape(field: Field) -> Shape:
    """Return the shape that all rows have: the field's, with one channel added for a grey picture."""
    shape = tuple(size for size in field.shape if size is not None)
    return (*shape, 1) if field.is_raw_picture and len(shape) == 2 else shape


def is_uniform(shapes: NDArray[np.int64]) -> bool:
    """Return whether there are rows and all are equal; rows made by broadcasting are not compared."""
    return len(shapes) > 0 and (shapes.strides[0] == 0 or bool((shapes == shapes[0]).all()))


def label_values(column: NDArray[Any], *, where: str) -> NDArray[Any]:
    """Convert a column of labels to the dtype that torch's default collate gives Python numbers: int64 or float64."""
    if column.dtype.kind not in "biuf":
        raise SchemaError(f"{where}: expected numbers as labels, got {column.dtype}: pack class numbers instead")
    if column.dtype == np.uint64 and column.size and column.max() > np.iinfo(np.int64).max:
        raise SchemaError(
            f"{where}: a label is {column.max()}, but labels are int64, below 2**63: pack numbers that fit, or "
            "pack the bits as '<i8'"
        )
    if column.ndim > 1:
        return column
    return column.astype(np.int64 if column.dtype.kind in "biu" else np.float64)


def one_by_one(labels: NDArray[Any]) -> list[Any]:
    """Return each sample's label: a Python number, or an array, because default_collate stacks arrays but not lists."""
    return list(labels) if labels.ndim > 1 else list(labels.tolist())
