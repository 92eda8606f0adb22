"""The antialiased filters of the native core, as Pillow names them."""

from __future__ import annotations

from typing import Final

from PIL.Image import Resampling

__all__ = ["FILTERS"]

# A filter's position is its number in the native core.
FILTERS: Final = (
    Resampling.BILINEAR,
    Resampling.BICUBIC,
    Resampling.BOX,
    Resampling.LANCZOS,
    Resampling.HAMMING,
    Resampling.NEAREST,
)
