"""Reads what a picture file says besides its pixels: Pillow's ``info`` and ``format``, without decoding if possible."""

from __future__ import annotations

import io
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.types.picture_kinds import JPEG_SIGNATURE, PNG_SIGNATURE

__all__ = ["PictureHeader", "is_plain_png", "read_header"]

Info = dict[str | tuple[int, int], Any]

_FIRST_CHUNK = 33  # the position of the first chunk after a PNG's header
_FRAME = 12  # bytes of a chunk's length, name and CRC
_MARKER, _JFIF, _SCAN = 0xFF, 0xE0, 0xDA  # JPEG markers
_FRAMES, _TABLES = (0xC0, 0xC1, 0xC2), (0xC4, 0xDB, 0xDD)
_MOST_TABLES = 4096  # how many bytes are examined
_INTERLACE = 28  # the byte of the header that says whether the picture is interlaced


class PictureHeader(NamedTuple):
    """The attributes of an opened picture; ``info`` as ``convert`` leaves it."""

    format: str | None
    info: Info


def read_header(data: NDArray[np.uint8], mode: str) -> PictureHeader:
    """
    Return the header of an encoded picture that is converted to ``mode``.

    Raises what Pillow raises for bytes that it does not recognise as a picture.
    """
    if is_plain_png(data):
        return PictureHeader("PNG", {})
    plain = _plain_jpeg(data)
    if plain is not None:
        known = _of_plain_jpeg(plain)
        return PictureHeader(known.format, dict(known.info))
    with Image.open(io.BytesIO(data.data)) as picture:
        chunks = _chunks(data)
        is_complete = picture.format == "JPEG" or (chunks is not None and not _is_text_behind_pixels(chunks))
        if is_complete and "transparency" not in picture.info:
            return PictureHeader(picture.format, picture.info)
        return PictureHeader(picture.format, picture.convert(mode).info)  # decoding and converting add to ``info``


def _plain_jpeg(data: NDArray[np.uint8]) -> bytes | None:
    """
    Return the segments of a JPEG that ``info`` depends on, as a file of their own, or None if there are unusual
    segments.

    The usual ones are JFIF, tables and one frame; what Pillow says depends only on JFIF and the kind of frame.
    """
    head = data[:_MOST_TABLES].tobytes()
    if not head.startswith(JPEG_SIGNATURE):
        return None
    kept, offset = [JPEG_SIGNATURE[:2]], 2
    while offset + 4 <= len(head) and head[offset] == _MARKER:
        name, stop = head[offset + 1], offset + 2 + int.from_bytes(head[offset + 2 : offset + 4])
        if name in _FRAMES or (name == _JFIF and offset == 2):
            kept.append(head[offset:stop])
        elif name == _SCAN:
            return b"".join((*kept, head[offset:stop]))
        elif name not in _TABLES:
            return None
        offset = stop
    return None


@lru_cache(maxsize=256)
def _of_plain_jpeg(segments: bytes) -> PictureHeader:
    """Return what Pillow says; photos of one camera or program share it."""
    with Image.open(io.BytesIO(segments)) as picture:
        return PictureHeader(picture.format, picture.info)


def is_plain_png(data: NDArray[np.uint8]) -> bool:
    """
    Return whether this is a PNG of three chunks, not interlaced: Pillow then has nothing to say about it.

    Most small PNGs are; asking Pillow would take longer than decoding them.
    """
    head = data[: _FIRST_CHUNK + 8].tobytes()
    if not head.startswith(PNG_SIGNATURE) or head[_FIRST_CHUNK + 4 :] != b"IDAT" or head[_INTERLACE]:
        return False
    return _FIRST_CHUNK + int.from_bytes(head[_FIRST_CHUNK : _FIRST_CHUNK + 4]) + 2 * _FRAME == len(data)


def _chunks(data: NDArray[np.uint8]) -> list[bytes] | None:
    """Return the names of a PNG's chunks; None for another format."""
    if data[: len(PNG_SIGNATURE)].tobytes() != PNG_SIGNATURE:
        return None
    view, offset, chunks = data.data, len(PNG_SIGNATURE), []
    while offset + 8 <= len(view):
        size, name = struct.unpack_from(">I4s", view, offset)
        chunks.append(name)
        offset += size + _FRAME
    return chunks


def _is_text_behind_pixels(chunks: list[bytes]) -> bool:
    """Return whether there are chunks that Pillow reads only when it decodes: text or EXIF after the pixels."""
    last = len(chunks) - 1 - chunks[::-1].index(b"IDAT") if b"IDAT" in chunks else 0
    return any(name != b"IEND" for name in chunks[last + 1 :])
