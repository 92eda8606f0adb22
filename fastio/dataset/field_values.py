"""The values of payload fields and of columns, as samples have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.codec.copied import parse_json
from fastio.codec.pillow import open_picture
from fastio.dataset.bfloat16 import sample_value
from fastio.dataset.form import LABEL
from fastio.dataset.picture.lazy import LazyPicture, small_picture
from fastio.dataset.picture.stored import StoredPicture
from fastio.dataset.row_reader import RowReader, is_uniform, label_values
from fastio.dataset.token_reader import TokenReader, read_text
from fastio.lazy import torch, torch_if_there
from fastio.store.protocol import SampleStore
from fastio.types.npy import npy_array
from fastio.types.spans import Spans

__all__ = [
    "FieldValues",
    "column_values",
]


# Pixels; smaller pictures are decoded a batch at a time: putting that off would cost more than it saves.
_EAGER_PIXELS = 64 * 64


class FieldValues:
    """
    Makes the values of one field, before any transform.

    A picture becomes a PIL image, lazy if it is larger than 64 x 64 pixels; a mask a PIL image as stored (mode "P",
    "L", "1" or "I;16"); text ``str``; JSON the object; bytes ``bytes``; token ids an int64 tensor, or an array where
    torch cannot be imported; arrays NumPy arrays of the field's dtype, which can be written to; arrays of bfloat16
    tensors, or arrays of float32, which holds the same values, where torch cannot be imported.
    """

    def __init__(self, reader: RowReader) -> None:
        self.reader = reader
        self.tokens = TokenReader(reader) if reader.field.traits.is_tokens else None

    def read(self, indices: NDArray[np.int64], spans: Spans, *, verify: bool) -> list[Any]:
        """Return the value of each sample from spans in memory. Raises SampleError for the first bad one."""
        reader = self.reader
        if reader.is_picture:  # most stores, and ``dataset[i]`` asks once per sample: before any look at traits
            return self._pictures(indices, spans, verify)
        traits = reader.field.traits
        if self.tokens is not None:
            return list(self.tokens.values(indices, spans, verify=verify))
        if traits.is_text:
            return list(read_text(reader, indices, spans, verify=verify))
        if traits.is_json:
            return [self._json(indices, spans, position, verify) for position in range(len(indices))]
        if traits.is_mask:
            return [self._mask(indices, spans, position, verify) for position in range(len(indices))]
        if traits.is_ragged:
            return [self._ragged(indices, spans, position, verify) for position in range(len(indices))]
        if traits.is_npy:
            return [self._npy(indices, spans, position, verify) for position in range(len(indices))]
        if not reader.has_rows:
            return [reader.encoded(indices, spans, position, verify=verify) for position in range(len(indices))]
        return self._rows(indices, spans, verify)

    def blank(self, index: NDArray[np.int64], spans: Spans) -> Any:
        """
        Return what replaces the value of one sample, ``(1,)``, that cannot be read.

        A black picture or zeros of the array's own shape, no tokens, no rows, empty text or bytes; None for JSON.
        Raises SampleError if the size of a picture is unknown.
        """
        field, traits = self.reader.field, self.reader.field.traits
        if self.tokens is not None:
            none = np.empty(0, np.int64)
            return none if torch_if_there() is None else torch.from_numpy(none)
        if traits.is_text:
            return ""
        if traits.is_json:
            return None
        if traits.is_ragged:
            return sample_value(np.empty((0, *_row_shape(field.shape)), field.dtype))
        if traits.is_npy:
            return sample_value(np.zeros(self.reader.store.shapes(field.name)[index[0]], field.dtype))
        if not self.reader.has_rows:
            return b""
        row = self.reader.blank(index, spans)
        if traits.is_mask:
            return Image.fromarray(row)
        return _picture(row) if self.reader.is_picture else sample_value(row)

    def _rows(self, indices: NDArray[np.int64], spans: Spans, verify: bool) -> list[Any]:
        return list(sample_value(self.reader.read(indices, spans, self.reader.shapes(indices, spans), verify=verify)))

    def _json(self, indices: NDArray[np.int64], spans: Spans, position: int, verify: bool) -> Any:
        data = self.reader.encoded(indices, spans, position, verify=verify)
        try:
            return parse_json(data)
        except ValueError as exc:
            raise self.reader.error(indices, spans, position, f"is no JSON document: {exc}") from exc

    def _ragged(self, indices: NDArray[np.int64], spans: Spans, position: int, verify: bool) -> Any:
        field = self.reader.field
        data = self.reader.encoded(indices, spans, position, verify=verify)
        shape = _row_shape(field.shape)
        if field.unit_bytes == 0 and not data:
            return sample_value(np.empty((0, *shape), field.dtype))
        if field.unit_bytes == 0 or len(data) % field.unit_bytes:
            words = f"{len(data)} bytes are no whole rows of {field.unit_bytes} bytes: pack again"
            raise self.reader.error(indices, spans, position, words)
        return sample_value(np.frombuffer(bytearray(data), field.dtype).reshape(-1, *shape))

    def _npy(self, indices: NDArray[np.int64], spans: Spans, position: int, verify: bool) -> Any:
        data = self.reader.encoded(indices, spans, position, verify=verify)
        try:
            return sample_value(npy_array(self.reader.field, bytearray(data)))
        except ValueError as exc:
            raise self.reader.error(indices, spans, position, f"is {exc}") from exc

    def _mask(self, indices: NDArray[np.int64], spans: Spans, position: int, verify: bool) -> Image.Image:
        data = self.reader.encoded(indices, spans, position, verify=verify)
        try:
            with open_picture(data) as picture:
                picture.load()
                return picture.copy()
        except ValueError as exc:
            raise self.reader.error(indices, spans, position, str(exc)) from exc

    def _pictures(self, indices: NDArray[np.int64], spans: Spans, verify: bool) -> list[Image.Image]:
        """Return lazy pictures; small ones are decoded here, with one native call per size."""
        reader = self.reader
        shapes = reader.shapes(indices, spans)
        sources = [
            StoredPicture(reader, index, self._place(spans, position), shape, verify)
            for position, (index, shape) in enumerate(zip(indices.tolist(), shapes.tolist(), strict=True))
        ]
        if is_uniform(shapes) and sources[0].pixel_count <= _EAGER_PIXELS:
            return list(map(small_picture, sources, reader.read(indices, spans, shapes, verify=verify)))
        pictures: list[Image.Image] = [LazyPicture.of(source) for source in sources]
        # Pictures with bad headers have no pixels at all.
        chosen = np.flatnonzero(shapes[:, 0] * shapes[:, 1] <= _EAGER_PIXELS)
        for group in _groups(shapes[chosen]):
            positions = chosen[group]
            rows = reader.read(indices[positions], spans.at(positions), shapes[positions], verify=verify)
            for position, row in zip(positions.tolist(), rows, strict=True):
                pictures[position] = small_picture(sources[position], row)
        return pictures

    def _place(self, spans: Spans, position: int) -> tuple[Spans, int]:
        """
        Return the location of one value for a StoredPicture: in the mapping, or copied from what was read with it.
        """
        if self.reader.store.files.in_place:
            return spans, position
        one = spans.part(position, position + 1)
        copy, start = one.view(0).copy(), np.zeros(1, np.int64)
        return Spans.of(copy, start, one.sizes, checksums=one.checksums, intervals=one.intervals), 0


def _row_shape(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the shape of one row of a ragged field."""
    return tuple(size for size in shape[1:] if size is not None)


def _groups(shapes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Group positions of equal shape."""
    if (shapes == shapes[:1]).all():
        return [np.arange(len(shapes))] if len(shapes) else []
    distinct, group_of = np.unique(shapes, axis=0, return_inverse=True)
    return [np.flatnonzero(group_of.reshape(-1) == group) for group in range(len(distinct))]


def _picture(row: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(row[:, :, 0] if row.shape[2] == 1 else row)


# The columns of a store in the dtypes that torch's default collate gives the numbers of samples.


def column_values(store: SampleStore, name: str) -> NDArray[Any]:
    """
    Return a column, ``(n, ...)``, whose elements as Python values are those of samples.

    Whole numbers become int64 (uint64 stays, where a number needs it) and floats float64, as in a batch of Python
    numbers. Bools, text, and arrays of any dtype stay as they are; bools in the column "label" count as numbers.
    """
    column = store.column(name)
    if name == LABEL and column.dtype.kind in "biuf":
        return label_values(column, where=f"{store.path}: column {name!r}")
    if column.ndim > 1 or column.dtype.kind not in "iuf":
        return column
    if column.dtype.kind == "f":
        return column.astype(np.float64, copy=False)
    needs_uint64 = column.dtype == np.uint64 and bool(column.size) and column.max() > np.iinfo(np.int64).max
    return column if needs_uint64 else column.astype(np.int64, copy=False)
