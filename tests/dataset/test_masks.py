"""Masks of a store as rows: by RowReader, with the plan of the pictures beside them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio.codec.codec import Geometry
from fastio.codec.mask import MaskCodec, nearest_row
from fastio.dataset.field_values import FieldValues
from fastio.dataset.row_reader import RowReader
from fastio.errors import SampleError, SchemaError
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.protocol import SampleStore
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from tests.codec.conformance import spans_of

Encode = Callable[[NDArray[np.uint8]], bytes]

NUMBERS = np.random.default_rng(0).integers(0, 256, (3, 6, 8), np.uint8)
PLAN = np.array([[1, 2, 6, 4, 3, 5, 0, 0, 3, 5, 1, 0, 1]] * 3, np.int32)  # rows of 5 x 4


def bmp(numbers: NDArray[np.uint8]) -> bytes:
    """A kind that only Pillow decodes."""
    file = io.BytesIO()
    Image.fromarray(numbers).save(file, "BMP")
    return file.getvalue()


def store_of(path: Path, files: list[bytes], type_: str) -> SampleStore:
    """A store of these masks."""
    with create_store(path, Schema((field_of("mask", type_),))) as writer:
        writer.append(SampleBatch([str(i) for i in range(len(files))], {"mask": spans_of(files)}, {}))
    return open_store(path)


@pytest.mark.parametrize("type_", ["mask", "mask16"])
@pytest.mark.parametrize("encode", [MaskCodec().encode, bmp])
def test_rows_are_the_numbers(tmp_path: Path, encode: Encode, type_: str) -> None:
    """Whole, and by a plan; by native code or by Pillow."""
    indices = np.arange(3)
    with store_of(tmp_path / "a.lmdb", [encode(numbers) for numbers in NUMBERS], type_) as store:
        reader = RowReader(store, "mask", mode="RGB")
        spans = store.spans("mask", indices)
        shapes = reader.shapes(indices, spans)
        assert np.dtype(field_of("mask", type_).dtype) == reader.dtype
        assert [[6, 8]] * 3 == shapes.tolist()
        np.testing.assert_array_equal(NUMBERS, reader.read(indices, spans, shapes, verify=True))
        assert (6, 8) == reader.blank(indices[:1], spans.part(0, 1)).shape

        rows, status = np.zeros((3, 5, 4), reader.dtype), np.zeros(3, np.int32)
        geometry = Geometry(PLAN, fill=b"\x07", sizes=np.full((3, 2), (6, 8), np.int32))
        reader.decode(spans, rows, status, pool=None, verify=True, geometry=geometry).wait()
        assert {} == reader.settle(indices, spans, rows, status, geometry=geometry)
        expected = [nearest_row(numbers, PLAN[0].tolist(), (5, 4), fill=7) for numbers in NUMBERS]
        np.testing.assert_array_equal(expected, rows)


@pytest.mark.parametrize("encode", [MaskCodec().encode, bmp])
def test_another_size_than_the_pictures(tmp_path: Path, encode: Encode) -> None:
    """The error names both sizes."""
    indices = np.arange(1)
    with store_of(tmp_path / "a.lmdb", [encode(NUMBERS[0])], "mask") as store:
        reader, spans = RowReader(store, "mask", mode=None), store.spans("mask", indices)
        rows, status = np.zeros((1, 5, 4), np.uint8), np.zeros(1, np.int32)
        geometry = Geometry(PLAN[:1], sizes=np.array([[6, 9]], np.int32))
        reader.decode(spans, rows, status, pool=None, verify=True, geometry=geometry).wait()
        errors = reader.settle(indices, spans, rows, status, geometry=geometry)
    assert "field 'mask': it is 6x8, but its picture 6x9 (height x width)" in str(errors[0])


def test_masks_that_do_not_fit_the_field(tmp_path: Path) -> None:
    """The error says how to declare the field."""
    file = MaskCodec().encode(NUMBERS[0].astype("<u2") * 100)
    indices = np.arange(1)
    with store_of(tmp_path / "a.lmdb", [file], "mask") as store:
        reader, spans = RowReader(store, "mask", mode=None), store.spans("mask", indices)
        with pytest.raises(SampleError, match=r"with 16-bit numbers, but masks of 8 bits are expected.*mask16"):
            reader.read(indices, spans, reader.shapes(indices, spans), verify=True)


def test_colours(tmp_path: Path) -> None:
    """Masks with colours have rows with channels; sizes that differ are named."""
    files = [MaskCodec().encode(np.zeros((height, 4, 3), np.uint8)) for height in (5, 6)]
    indices = np.arange(2)
    with store_of(tmp_path / "a.lmdb", files, "mask[3]") as store:
        reader, spans = RowReader(store, "mask", mode=None), store.spans("mask", indices)
        shapes = reader.shapes(indices, spans)
        assert [[5, 4, 3], [6, 4, 3]] == shapes.tolist()
        with pytest.raises(SchemaError, match=r"masks of different sizes.*'0' is 5x4x3, '1' is 6x4x3"):
            reader.common_shape(indices, shapes)


@pytest.mark.parametrize(("type_", "mode"), [("mask", "L"), ("mask16", "I;16"), ("mask[3]", "RGB")])
def test_a_blank_mask(tmp_path: Path, type_: str, mode: str) -> None:
    """What replaces a mask that cannot be read has its size, and the mode of its field."""
    channels = (3,) if mode == "RGB" else ()
    dtype = np.uint16 if type_ == "mask16" else np.uint8
    file = MaskCodec().encode(np.ones((6, 8, *channels), dtype))
    with store_of(tmp_path / "a.lmdb", [file], type_) as store:
        values = FieldValues(RowReader(store, "mask", mode=None))
        blank = values.blank(np.arange(1), store.spans("mask", np.arange(1)))
    assert (mode, (8, 6), 0) == (blank.mode, blank.size, np.asarray(blank).max())
