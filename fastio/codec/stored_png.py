"""Pixels as an uncompressed PNG: a picture of any size that the native decoders copy from memory."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from fastio.types.picture_kinds import PNG_SIGNATURE

__all__ = ["stored_png"]

_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # the colour type by channels
_DEPTH = 8


def stored_png(pixels: NDArray[np.uint8]) -> bytes:
    """
    Return an uncompressed PNG file of pixels ``(H, W, C)`` with C 1, 3 or 4.

    >>> len(stored_png(np.zeros((2, 3, 3), np.uint8)))
    88
    """
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter: 0, none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, _DEPTH, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.data, 0)), (b"IEND", b"")
    return PNG_SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return b"".join((struct.pack(">I", len(data)), name, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))))
