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
    The most pixels that are decoded: twice ``PIL.Image.MAX_IMAGE_PIXELS``, as in Pillow; None: no limit.

    Pillow's setting is looked up at each call, so that a program sets it in one place, at any time.
    """
    return None if Image.MAX_IMAGE_PIXELS is None else 2 * Image.MAX_IMAGE_PIXELS


def is_refused(shapes: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which pictures are too large to be decoded; ``shapes`` is ``(n, 2 or more)``, height and width first."""
    limit = pixel_limit()
    if limit is None:
        return np.zeros(len(shapes), np.bool_)
    refused: NDArray[np.bool_] = shapes[:, 0].astype(np.int64) * shapes[:, 1] > limit
    return refused


def refusal(height: int, width: int) -> str:
    """Why such a picture is not decoded, in words that follow its name."""
    return (
        f"announces {height:,} x {width:,} pixels, and more than {pixel_limit():,} are refused as a decompression bomb "
        f"(twice PIL.Image.MAX_IMAGE_PIXELS); raise that, or use --max-pixels, if the picture is meant to be so large"
    )


def warn_of_large(name: str, height: int, width: int) -> None:
    """Pillow's DecompressionBombWarning for a picture of more than MAX_IMAGE_PIXELS pixels that is not refused."""
    warnings.warn(
        f"{name} has {height:,} x {width:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS ({Image.MAX_IMAGE_PIXELS:,}): "
        f"it could be a decompression bomb",
        Image.DecompressionBombWarning,
        stacklevel=2,
    )
