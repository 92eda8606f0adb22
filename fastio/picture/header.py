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


class Header(NamedTuple):
    """As the attributes of an opened picture; ``info`` as ``convert`` leaves it."""

    format: str | None
    info: Info


def read_header(data: NDArray[np.uint8], mode: str) -> Header:
    """
    The header of an encoded picture that is converted to ``mode``.

    Raises what Pillow raises for bytes that it does not take for a picture.
    """
    with Image.open(io.BytesIO(data.data)) as picture:
        if "transparency" in picture.info or _has_chunks_behind_pixels(data):
            return Header(picture.format, picture.convert(mode).info)
        return Header(picture.format, picture.info)


def _has_chunks_behind_pixels(data: NDArray[np.uint8]) -> bool:
    """Whether this is a PNG with text or EXIF behind its pixels, which Pillow reads when it decodes."""
    if data[: len(_PNG)].tobytes() != _PNG:
        return False
    view, offset, has_pixels = data.data, len(_PNG), False
    while offset + 8 <= len(view):
        size, kind = struct.unpack_from(">I4s", view, offset)
        if has_pixels and kind not in (b"IDAT", b"IEND"):
            return True
        has_pixels = has_pixels or kind == b"IDAT"
        offset += size + 12  # length, name and CRC
    return False
