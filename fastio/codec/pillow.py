"""The plain path: Pillow decodes one picture of a kind that the native decoders leave to it."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

__all__ = ["PLUGIN_ERRORS", "DecodedPicture", "decode_with_pillow", "mode_of", "open_picture"]

Encoded = bytes | memoryview | NDArray[np.uint8]

_USUAL_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")

# What Pillow's plugins are known to raise for malformed bytes.
PLUGIN_ERRORS = (
    Image.DecompressionBombError,
    EOFError,
    IndexError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,  # if the program turns warnings into errors
    struct.error,
    zlib.error,
)


class DecodedPicture(NamedTuple):
    """Pixels ``(H, W, C)`` uint8, and the kind of file that they come from in words ("WEBP", "CMYK JPEG")."""

    pixels: NDArray[np.uint8]
    kind: str


def decode_with_pillow(data: Encoded, mode: str) -> DecodedPicture:
    """
    Decode the picture's first frame and convert it to ``mode`` ("L", "RGB" or "RGBA").

    Raises ValueError, in one line, for whatever Pillow finds wrong; what it only warns of stays a warning. Safe in
    several threads at once (hence no ``warnings.catch_warnings``).
    """
    with open_picture(data) as picture:
        kind = f"{picture.format}" if picture.mode in _USUAL_MODES else f"{picture.mode} {picture.format}"
        pixels = np.array(picture.convert(mode))
    return DecodedPicture(pixels.reshape(*pixels.shape[:2], -1), kind)


def mode_of(data: Encoded) -> str:
    """Return Pillow's name for the stored pixels ("RGB", "CMYK", "I;16"). Raises ValueError as above."""
    with open_picture(data) as picture:
        return picture.mode


@contextmanager
def open_picture(data: Encoded) -> Iterator[Image.Image]:
    """Open a picture as Pillow does. Whatever Pillow finds wrong in the block is a ValueError of one line."""
    Image.init()  # Image.open loads plugins on demand: of two threads that do so at once, one may miss a plugin
    try:
        with Image.open(io.BytesIO(data.data if isinstance(data, np.ndarray) else data)) as picture:
            yield picture
    except UnidentifiedImageError as exc:
        raise ValueError("it is not recognised as a picture, not even by Pillow") from exc
    except PLUGIN_ERRORS as exc:
        words = " ".join(str(exc).split()) or type(exc).__name__
        raise ValueError(f"Pillow cannot decode it: {words}") from exc
