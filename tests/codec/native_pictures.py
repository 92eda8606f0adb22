"""One encoded picture through the native decoders: as a whole, or a region of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import read_headers
from fastio.converters.pictures.probe import probe
from fastio.types.spans import Spans
from tests.codec.test_png import CHANNELS, by_pillow, decode
from tests.native.test_transformed import Batch, whole

__all__ = [
    "CHANNELS",
    "assert_pillows",
    "by_pillow",
    "damaged",
    "decode",
    "decode_region",
    "header_of",
    "packing_status",
]

Box = tuple[int, int, int, int]


def decode_region(file: bytes, box: Box, channels: int) -> tuple[int, NDArray[np.uint8]]:
    """Status and pixels of the region ``box`` (x, y, width, height)."""
    batch = Batch([file], [whole(box, box[2:])], channels)
    pixels = batch.decode()[0]
    return int(batch.status[0]), pixels


def assert_pillows(file: bytes, box: Box | None = None) -> None:
    """Assert that the picture, and the region ``box``, have Pillow's pixels in every number of channels."""
    for mode, channels in CHANNELS.items():
        expected = by_pillow(file, mode)
        status, pixels = decode(file, expected.shape[:2], channels)
        assert status == _native.OK
        np.testing.assert_array_equal(expected, pixels)
        if box is not None:
            x, y, width, height = box
            status, pixels = decode_region(file, box, channels)
            assert status == _native.OK
            np.testing.assert_array_equal(expected[y : y + height, x : x + width], pixels)


def damaged(file: bytes) -> Iterator[bytes]:
    """Every prefix of a file, and the file with each of its bits flipped."""
    yield from (file[:size] for size in range(len(file)))
    for bit in range(8 * len(file)):
        flipped = bytearray(file)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def spans_of(file: bytes) -> Spans:
    """One file."""
    return Spans.joined(np.frombuffer(file, np.uint8), np.array([len(file)]))


def header_of(file: bytes) -> NDArray[np.int32]:
    """Status, height, width, channels and kind."""
    return read_headers(spans_of(file)).rows[0]


def packing_status(file: bytes) -> int:
    """What packing says of a file: OK, or what is wrong."""
    return int(probe(spans_of(file), check_end=True).status[0])
