"""The plain path: Pillow decodes one picture that the native decoders leave to it. Limits and filters hold for both."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from PIL.Image import Resampling

from fastio._native import image_kind
from fastio.types.picture_kinds import PICTURE_KINDS, UNKNOWN, load_plugin

__all__ = [
    "FILTERS",
    "PLUGIN_ERRORS",
    "DecodedPicture",
    "decode_mask_with_pillow",
    "decode_with_pillow",
    "is_refused",
    "mask_form",
    "mode_of",
    "open_picture",
    "pillow_takes_cheaper_pass_first",
    "pixel_limit",
    "refusal",
    "shape_of",
    "teach_pillow",
    "warn_of_large",
]


Encoded = bytes | memoryview | NDArray[np.uint8]

_SIGNATURE_BYTES = 32  # of a picture, in which its kind is known
_USUAL_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")

# What Pillow's plugins are known to raise for malformed bytes.
# From here on Pillow raises MemoryError for rows of 32 bits a pixel, however much memory there is.
_TOO_WIDE = 1 << 26

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


class UnidentifiedError(ValueError):
    """Pillow does not recognise a picture."""


class DecodedPicture(NamedTuple):
    """
    Pixels, and the kind of file that they come from in words ("WEBP", "CMYK JPEG").

    They are ``(H, W, C)`` uint8; those of a mask ``(H, W)`` or ``(H, W, C)``, uint8 or uint16.
    """

    pixels: NDArray[Any]
    kind: str


class MaskForm(NamedTuple):
    """How many channels the numbers of a mask have, and the bits of each: 8, 16, or 32 for no mask."""

    channels: int
    bits: int


def decode_with_pillow(data: Encoded, mode: str) -> DecodedPicture:
    """
    Decode the picture's first frame and convert it to ``mode`` ("L", "RGB" or "RGBA").

    Raises ValueError, in one line, for whatever Pillow finds wrong; what it only warns of stays a warning. Safe in
    several threads at once (hence no ``warnings.catch_warnings``).
    """
    with open_picture(data) as picture:
        kind = _kind_of(picture)
        pixels = np.array(picture.convert(mode))
    return DecodedPicture(pixels.reshape(*pixels.shape[:2], -1), kind)


def decode_mask_with_pillow(data: Encoded) -> DecodedPicture:
    """
    Decode the numbers of a mask's first frame as stored: ``np.asarray(PIL.Image.open(file))``.

    Raises ValueError as above, and for pixels that neither 8 nor 16 bits hold.
    """
    with open_picture(data) as picture:
        kind = _kind_of(picture)
        is_narrowed = _is_narrowed(picture)
        numbers = np.asarray(picture)
    if is_narrowed:
        raise ValueError("its colours have 16 bits, and those of masks 8")
    if numbers.dtype == np.int32 and numbers.min() >= 0 and numbers.max() < 1 << 16:
        return DecodedPicture(numbers.astype(np.uint16), kind)
    if numbers.dtype.kind not in "bu" or numbers.dtype.itemsize > 2:
        raise ValueError(f"its pixels are {numbers.dtype}, and masks have 8 or 16 bits")
    return DecodedPicture(numbers.astype(np.uint8 if numbers.dtype.itemsize == 1 else np.uint16), kind)


def mask_form(data: Encoded) -> MaskForm:
    """Return the form of a mask's numbers, by its header. Raises ValueError as above."""
    with open_picture(data) as picture:
        if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PPM"):
            return MaskForm(1, 16)
        bits = 32 if picture.mode in ("I", "F") else 16 if _is_narrowed(picture) else 8
        return MaskForm(len(picture.getbands()), bits)


def _is_narrowed(picture: Image.Image) -> bool:
    """Whether Pillow keeps 8 of 16 bits of each colour."""
    # By position: before Pillow 11 these are plain tuples.
    decoded_as = " ".join(str(tile[3]) for tile in getattr(picture, "tile", ()))
    return not picture.mode.startswith("I") and (";16" in decoded_as or "65535" in decoded_as)


def shape_of(data: Encoded) -> tuple[int, int, int]:
    """
    Return height, width and channels as stored, see ``Headers.channels``, by the header alone. Raises ValueError as
    above, UnidentifiedError where Pillow does not know the kind.
    """
    with open_picture(data) as picture:
        return picture.height, picture.width, {"P": 3, "PA": 4}.get(picture.mode, len(picture.getbands()))


def mode_of(data: Encoded) -> str:
    """Return Pillow's name for the stored pixels ("RGB", "CMYK", "I;16"). Raises ValueError as above."""
    with open_picture(data) as picture:
        return picture.mode


def _kind_of(picture: Image.Image) -> str:
    return f"{picture.format}" if picture.mode in _USUAL_MODES else f"{picture.mode} {picture.format}"


def teach_pillow(data: Encoded) -> str:
    """
    Let Pillow open a picture whose kind it does not bring itself, if the package that does is there; returns "".

    Returns one sentence on what is missing if it is not.
    """
    begins = data[:_SIGNATURE_BYTES]
    head = begins.tobytes() if isinstance(begins, (np.ndarray, memoryview)) else begins
    kind = image_kind(np.frombuffer(head, np.uint8)) if head else UNKNOWN
    missing = load_plugin(kind)
    return f"it is {PICTURE_KINDS[kind]}, {missing}" if missing else ""


@contextmanager
def open_picture(data: Encoded) -> Iterator[Image.Image]:
    """Open a picture as Pillow does. Whatever Pillow finds wrong in the block is a ValueError of one line."""
    Image.init()  # Image.open loads plugins on demand: of two threads that do so at once, one may miss a plugin
    missing = teach_pillow(data)
    try:
        with Image.open(io.BytesIO(data.data if isinstance(data, np.ndarray) else data)) as picture:
            try:
                yield picture
            except MemoryError as exc:
                if picture.width < _TOO_WIDE:
                    raise
                raise OverflowError(f"its rows have {picture.width:,} pixels") from exc
    except UnidentifiedImageError as exc:
        raise UnidentifiedError(missing or "it is not recognised as a picture, not even by Pillow") from exc
    except PLUGIN_ERRORS as exc:
        words = " ".join(str(exc).split()) or type(exc).__name__
        raise ValueError(f"Pillow cannot decode it: {words}") from exc


# How many pixels a picture may have: Pillow's guard against decompression bombs, for every decoder of fastio.


def pixel_limit() -> int | None:
    """
    Return the most pixels to decode: twice ``PIL.Image.MAX_IMAGE_PIXELS``, as in Pillow; None means no limit.

    Pillow's setting is read at each call, so that a program can set it in one place, at any time.
    """
    return None if Image.MAX_IMAGE_PIXELS is None else 2 * Image.MAX_IMAGE_PIXELS


def is_refused(shapes: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return which pictures are too large to decode; ``shapes`` is ``(n, 2 or more)``, height and width first."""
    limit = pixel_limit()
    if limit is None:
        return np.zeros(len(shapes), np.bool_)
    refused: NDArray[np.bool_] = shapes[:, 0].astype(np.int64) * shapes[:, 1] > limit
    return refused


def refusal(height: int, width: int) -> str:
    """Return why such a picture is not decoded, as words that follow its name."""
    return (
        f"announces {height:,} x {width:,} pixels, but more than {pixel_limit():,} (twice "
        "PIL.Image.MAX_IMAGE_PIXELS) are refused as a decompression bomb; if the picture is really that "
        "large, raise that limit or use --max-pixels"
    )


def warn_of_large(name: str, height: int, width: int) -> None:
    """Give Pillow's DecompressionBombWarning for a picture above MAX_IMAGE_PIXELS that is not refused."""
    warnings.warn(
        f"{name} has {height:,} x {width:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS ({Image.MAX_IMAGE_PIXELS:,}): "
        f"it could be a decompression bomb",
        Image.DecompressionBombWarning,
        stacklevel=2,
    )


# The antialiased filters of the native core, as Pillow names them.

# A filter's position is its number in the native core.
FILTERS: Final = (
    Resampling.BILINEAR,
    Resampling.BICUBIC,
    Resampling.BOX,
    Resampling.LANCZOS,
    Resampling.HAMMING,
    Resampling.NEAREST,
)


# Which of its two passes a resize does first: native code does what the installed Pillow does.


@cache
def pillow_takes_cheaper_pass_first() -> bool:
    """
    Return whether the installed Pillow resamples columns before rows if the height shrinks by far more than the width.

    Pillow does since 13. Earlier versions, and Pillow-SIMD, always resample rows first. Values are rounded to 8 bits
    between the passes, so the order decides about single levels. Tested on a small picture.
    """
    noise = (np.arange(97 * 41 * 3, dtype=np.int64) ** 2 % 251).astype(np.uint8)
    picture = Image.fromarray(noise.reshape(97, 41, 3))
    by_columns = picture.resize((41, 30), Image.Resampling.BICUBIC).resize((60, 30), Image.Resampling.BICUBIC)
    return picture.resize((60, 30), Image.Resampling.BICUBIC).tobytes() == by_columns.tobytes()
