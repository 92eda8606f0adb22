"""Looks at some pictures of a packed store: how large they are, and whether start points would help."""

from __future__ import annotations

import os

import numpy as np

from fastio.converters.jump_fields import jump_fields, jump_growth
from fastio.converters.spread import spread_rows
from fastio.errors import FastioError
from fastio.store import open_store
from fastio.store.files.local import is_local

__all__ = ["look_at_pictures"]

_LOOKED_AT = 16  # pictures


def look_at_pictures(path: str | os.PathLike[str]) -> tuple[float | None, float | None]:
    """
    Return the median short side of a store's pictures, in pixels, and how many percent of their bytes start points
    would add.

    The side is None without pictures whose size is known, the percentage if start points would not help. Both are None
    for a store that is behind a URL, or that cannot be read.
    """
    if not is_local(str(path)):
        return None, None
    try:
        with open_store(path) as store:
            fields = jump_fields(store.schema) if len(store) else []
            rows = spread_rows(len(store), _LOOKED_AT)
            shorter = [store.shapes(field.name)[rows, :2].min(axis=1) for field in fields]
            sides = [float(np.median(pixels[pixels > 0])) for pixels in shorter if pixels.any()]  # 0: unknown
            return max(sides, default=None), max(jump_growth(store).values(), default=None)
    except (FastioError, OSError):
        return None, None
