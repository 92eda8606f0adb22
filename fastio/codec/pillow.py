"""The plain path: one picture by Pillow, for the kinds that the native decoders leave to it."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

__all__ = ["PLUGIN_ERRORS", "decode_with_pillow", "mode_of"]

Encoded = bytes | memoryview | NDArray[np.uint8]

# What Pillow's plugins are known to raise for bytes that are not what they should be.
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
    Warning,  # where the program has made warnings errors
    struct.error,
    zlib.error,
)


def decode_with_pillow(data: Encoded, mode: str) -> NDArray[np.uint8]:
    """
    The picture's first frame, converted to ``mode`` ("L", "RGB" or "RGBA"): ``(H, W, C)``.

    Whatever Pillow finds wrong is a ValueError that says it in one line; what it only warns of
    stays a warning. Safe in several threads at once (hence no ``warnings.catch_warnings``).
    """
    pixels = _decode(data, mode)
    return pixels.reshape(*pixels.shape[:2], -1)


def mode_of(data: Encoded) -> str:
    """Pillow's name for how the picture's pixels are stored ("RGB", "CMYK", "I;16"); ValueError as above."""
    with _opened(data) as picture:
        return picture.mode


def _decode(data: Encoded, mode: str) -> NDArray[np.uint8]:
    with _opened(data) as picture:
        return np.array(picture.convert(mode))


@contextmanager
def _opened(data: Encoded) -> Iterator[Image.Image]:
    try:
        with Image.open(io.BytesIO(data.data if isinstance(data, np.ndarray) else data)) as picture:
            yield picture
    except UnidentifiedImageError as exc:
        raise ValueError("it is not recognised as a picture, not by Pillow either") from exc
    except PLUGIN_ERRORS as exc:
        words = " ".join(str(exc).split()) or type(exc).__name__
        raise ValueError(f"Pillow cannot decode it: {words}") from exc
