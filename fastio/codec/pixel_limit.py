"""How many pixels a picture may have: Pillow's guard against decompression bombs, for every decoder of fastio."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["is_refused", "pixel_limit", "refusal", "warn_of_large"]


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
