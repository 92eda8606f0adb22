"""A kind of picture in one file and one row: 16 bytes of header, then RGB."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from fastio.types.picture_kinds import PictureKind

__all__ = ["ROW", "write_toy"]

_HEADER = struct.Struct("<4s4xII")  # the signature, the width, the height


class ToyImageFile(ImageFile.ImageFile):
    """How Pillow opens it."""

    format = "TOY"

    def _open(self) -> None:
        _, width, height = _HEADER.unpack(self.fp.read(_HEADER.size))
        if not width or not height:
            raise ValueError("no pixels")
        self._size, self._mode = (width, height), "RGB"
        self.tile = [ImageFile._Tile("raw", (0, 0, width, height), _HEADER.size, "RGB")]


Image.register_open(ToyImageFile.format, ToyImageFile, lambda start: start.startswith(b"ToyP"))


def write_toy(pixels: NDArray[np.uint8]) -> bytes:
    """Return a file of ``(H, W, 3)`` pixels."""
    return _HEADER.pack(b"ToyP", pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


ROW = PictureKind(name="Toy", extensions=("toy",), signatures=((0, b"ToyP\0\0\0\0"),))
