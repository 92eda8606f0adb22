"""Encoded pictures: JPEG and PNG go to the native decoders, everything else is marked for Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import Job, RowWork, ThreadPool
from fastio.codec.codec import Geometry
from fastio.codec.headers import Headers, read_headers
from fastio.codec.pillow import pixel_limit
from fastio.errors import SchemaError
from fastio.types.picture_kinds import JPEG_SIGNATURE, PNG_SIGNATURE
from fastio.types.spans import Spans

__all__ = [
    "ImageCodec",
    "is_for_gpu",
    "stored_png",
]


class ImageCodec:
    """
    A picture in any format, recognised by its first bytes.

    Decodes to ``(n, H, W, C)`` with C 1, 3 or 4. Pixels equal Pillow's ``convert`` to "L", "RGB" or "RGBA", to the
    bit for PNG, and for JPEG with the same libjpeg-turbo arithmetic. What the native decoders do not handle is
    UNSUPPORTED: see ``fastio.codec.pillow``.
    """

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return a PNG of a uint8 array ``(H, W)`` or ``(H, W, C)`` with C 1 to 4."""
        pixels = value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value
        is_picture = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (2, 3, 4))
        if value.dtype != np.uint8 or not is_picture or 0 in value.shape:
            raise SchemaError(f"expected a picture as uint8 (H, W) or (H, W, 1 to 4), got {value.dtype} {value.shape}")
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
        return file.getvalue()

    def probe(self, spans: Spans) -> Headers:
        """Read the headers of the pictures."""
        return read_headers(spans)

    def rows(self, spans: Spans, *, verify: bool, geometry: Geometry | None = None) -> RowWork:
        """Return what ``decode`` does to these pictures, for batches that native code makes of parts of them."""
        if geometry is None:
            return _native.plain_rows(spans, verify=verify, is_encoded=True)
        return _native.transformed_rows(
            spans,
            geometry.plan,
            verify=verify,
            fast=geometry.is_fast,
            max_pixels=pixel_limit(),
            **geometry.options,
        )

    def decode(
        self,
        spans: Spans,
        out: NDArray[np.uint8],
        status: NDArray[np.int32],
        *,
        pool: ThreadPool | None = None,
        verify: bool = True,
        geometry: Geometry | None = None,
    ) -> Job:
        """Decode picture i into ``out[i]``, ``(n, H, W, C)`` or planar; see ``Codec.decode``."""
        if geometry is not None:
            return _native.decode_transformed(
                spans,
                geometry.plan,
                out,
                status,
                pool,
                verify=verify,
                fast=geometry.is_fast,
                max_pixels=pixel_limit(),
                **geometry.options,
            )
        return _native.decode_images(spans, out, status, pool, verify=verify)


# Decides which JPEGs a GPU may decode: baseline, grey or YCbCr of 8 bits, and complete as far as headers tell.

_EOI = b"\xff\xd9"
_BASELINE, _SCAN, _ADOBE = 0xC0, 0xDA, 0xEE
_RGB = b"RGB"  # component ids that tell libjpeg not to convert colours
_LUMA = (0x11, 0x12, 0x21, 0x22, 0x41)  # 4:4:4, 4:4:0, 4:2:2, 4:2:0, 4:1:1, if both other components are 1x1

# Decoders stop at the end marker; bytes that some cameras write after it are accepted.
_TAIL = 1 << 10


def is_for_gpu(data: NDArray[np.uint8]) -> bool:
    """
    Return whether a GPU's decoder gives the same result as the CPU's, judging by headers and the file's end alone.

    A hardware decoder may silently fill the rest of a truncated JPEG with grey, so the end is checked. Progressive
    JPEGs, CMYK, RGB without conversion and 12 bits are left to the CPU.
    """
    head = data[: 1 << 16].tobytes()
    if not head.startswith(JPEG_SIGNATURE) or _EOI not in data[-_TAIL:].tobytes():
        return False
    place, components = 2, b""
    while place + 4 <= len(head):
        if head[place] != 0xFF:
            return False
        marker, size = head[place + 1], int.from_bytes(head[place + 2 : place + 4], "big")
        body = head[place + 4 : place + 2 + size]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        if marker == _SCAN:
            # One scan of all components, as baseline cameras write it.
            return len(components) in (1, 3) and body[:1] == bytes([len(components)])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            components, sampling = body[6::3], body[7::3]
            if marker != _BASELINE or body[:1] != b"\x08" or components == _RGB:
                return False
            if len(components) == 3 and (sampling[0] not in _LUMA or sampling[1:] != b"\x11\x11"):
                return False
        if marker == _ADOBE and body[:5] == b"Adobe" and body[11:12] != b"\x01" and len(body) >= 12:
            return False
        place += 2 + size
    return False


# Pixels as an uncompressed PNG: a picture of any size that the native decoders copy from memory.

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
