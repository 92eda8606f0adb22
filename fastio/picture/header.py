"""What a picture file says beside its pixels: Pillow's ``info`` and ``format``, without decoding where possible."""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["Header", "read_header"]

Info = dict[str | tuple[int, int], Any]

_PNG = b"\x89PNG\r\n\x1a\n"
_INTERLACE = 28  # where a PNG says whether it is interlaced


class Header(NamedTuple):
    """As the attributes of an opened picture; ``info`` as ``convert`` leaves it."""

    format: str | None
    info: Info


def read_header(data: NDArray[np.uint8], mode: str) -> Header:
    """
    The header of an encoded picture that is converted to ``mode``.

    Raises what Pillow raises for bytes that it does not take for a picture.
    """
    chunks = _chunks(data)
    if chunks is not None and set(chunks[1:]) == {b"IDAT", b"IEND"} and not data[_INTERLACE]:
        return Header("PNG", {})  # as most small PNGs, for which asking Pillow takes longer than decoding
    with Image.open(io.BytesIO(data.data)) as picture:
        is_complete = picture.format == "JPEG" or (chunks is not None and not _is_text_behind_pixels(chunks))
        if is_complete and "transparency" not in picture.info:
            return Header(picture.format, picture.info)
        return Header(picture.format, picture.convert(mode).info)  # decoding and converting add to it


def _chunks(data: NDArray[np.uint8]) -> list[bytes] | None:
    """The names of a PNG's chunks; None for another format."""
    if data[: len(_PNG)].tobytes() != _PNG:
        return None
    view, offset, chunks = data.data, len(_PNG), []
    while offset + 8 <= len(view):
        size, name = struct.unpack_from(">I4s", view, offset)
        chunks.append(name)
        offset += size + 12  # length, name and CRC
    return chunks


def _is_text_behind_pixels(chunks: list[bytes]) -> bool:
    """Whether there are chunks that Pillow reads only when it decodes: text or EXIF behind the pixels."""
    last = len(chunks) - 1 - chunks[::-1].index(b"IDAT") if b"IDAT" in chunks else 0
    return any(name != b"IEND" for name in chunks[last + 1 :])
