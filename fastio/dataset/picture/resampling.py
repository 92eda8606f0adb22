"""Decides which of Pillow's resizes the native core can do to the bit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np
from PIL import Image

from fastio.codec.filters import FILTERS
from fastio.dataset.picture.pending import Pending
from fastio.dataset.picture.render import by_pillow, from_array

__all__ = ["native_filter", "plain_size", "reduces_first"]

_NUMBERS: Final = {int(resampling): number for number, resampling in enumerate(FILTERS)}
_TRIED: Final = ((13, 60), (90, 120), (20, 11), (60, 30))  # sizes that 41 x 97 pixels become
_LONGEST_SIDE: Final = 1 << 20  # a number of the native core


def native_filter(resample: int | None) -> int | None:
    """
    Return the native core's number for one of Pillow's filters (None: its default), or None if Pillow has to do it.
    """
    number = _NUMBERS.get(int(Image.Resampling.BICUBIC) if resample is None else resample)
    return number if number is not None and _equals_pillow(number) else None


def plain_size(size: Iterable[Any]) -> tuple[int, int] | None:
    """Return width and height as Python numbers, or None for values that Pillow may refuse."""
    sides = tuple(size)
    if len(sides) != 2 or not all(isinstance(side, (int, np.integer)) for side in sides):
        return None
    width, height = int(sides[0]), int(sides[1])
    return (width, height) if 0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE else None


def reduces_first(old: tuple[int, int], new: tuple[int, int], gap: float | None) -> bool:
    """
    Return whether ``reducing_gap`` has an effect (or is wrong): Pillow then averages whole blocks before resampling.
    """
    if gap is None:
        return False
    return not gap >= 1.0 or any(int(before / after / gap) > 1 for before, after in zip(old, new, strict=True))


@cache
def _equals_pillow(number: int) -> bool:
    """
    Return whether this process's Pillow resamples like the native core, tested on a small picture.

    Pillow-SIMD does not: it computes other weights.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (97, 41, 3), np.uint8)
    for size in _TRIED:
        pending = Pending.nothing(41, 97, "RGB").resized(size, number)
        assert pending is not None
        if not np.array_equal(from_array(pixels, "RGB", pending), by_pillow(pixels, "RGB", pending)):
            return False
    return True
