"""Which of its two passes a resize does first: native code does what the installed Pillow does."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image

__all__ = ["pillow_takes_cheaper_pass_first"]


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
