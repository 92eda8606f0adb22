"""Parses sizes, paddings, fills and filters as users write them, or refuses them in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
from PIL import Image

from fastio.codec.pillow import FILTERS
from fastio.errors import SchemaError

__all__ = [
    "KERNELS",
    "Fill",
    "Interpolation",
    "as_fill",
    "as_kernel",
    "as_mask_fill",
    "as_padding",
    "as_size",
    "check_antialias",
    "check_mask_fill",
    "check_probability",
]

Fill = tuple[int, ...]  # one number for all channels, or one per channel
Interpolation = Any  # a name, torchvision's InterpolationMode or Pillow's Image.Resampling

# The antialiased filters by name, in the order of the native core's numbers.
KERNELS: Final[dict[str, Image.Resampling]] = {each.name.lower(): each for each in FILTERS}


def as_kernel(interpolation: Interpolation) -> str:
    """
    Return the filter's name in KERNELS. Raises ValueError for an unknown filter.

    >>> as_kernel(Image.Resampling.BICUBIC), as_kernel("nearest-exact")
    ('bicubic', 'nearest')
    """
    # Pillow's enum has numbers as values, torchvision's has names.
    value = interpolation.value if isinstance(interpolation, Enum) else interpolation
    if isinstance(value, int) and not isinstance(value, bool):
        value = next((name for name, number in KERNELS.items() if number == value), value)
    if value == "nearest-exact":
        value = "nearest"  # the same in Pillow, whose "nearest" is exact
    if value not in KERNELS:
        raise ValueError(f"interpolation={interpolation!r}: expected one of {', '.join(KERNELS)}")
    return str(value)


def check_antialias(antialias: object) -> None:
    """Raise ValueError for ``antialias=False``, which is not offered."""
    if antialias is not True:
        raise ValueError(f"antialias={antialias!r}: resizing is always antialiased, as in Pillow; leave it out")


def as_size(size: int | Sequence[int]) -> tuple[int, int]:
    """Return height and width; a single number means a square."""
    sizes = tuple(size) if isinstance(size, Sequence) else (size,)
    if len(sizes) not in (1, 2) or not all(_is_size(each) for each in sizes):
        raise ValueError(f"size={size!r}: expected a number of at least 1, or (height, width)")
    return int(sizes[0]), int(sizes[-1])


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535


def as_padding(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """
    Return left, top, right and bottom from one number, two (left and right, top and bottom) or all four.

    >>> as_padding((1, 2))
    (1, 2, 1, 2)
    """
    sides = tuple(padding) if isinstance(padding, Sequence) else (padding,)
    if len(sides) not in (1, 2, 4) or not all(isinstance(side, int) and 0 <= side <= 65535 for side in sides):
        raise ValueError(
            f"padding={padding!r}: expected one, two or four numbers of at least 0 (left, top, right, bottom)"
        )
    left, top, right, bottom = sides if len(sides) == 4 else (sides * 2 if len(sides) == 2 else sides * 4)
    return int(left), int(top), int(right), int(bottom)


def as_fill(fill: float | Sequence[float] | None, padding_mode: str = "constant") -> Fill:
    """Return the colour of edges: one number per channel, or a single one for all of them."""
    if padding_mode != "constant":
        raise ValueError(
            f"padding_mode={padding_mode!r}: only 'constant' is supported; for others use torchvision's transform"
        )
    if isinstance(fill, Mapping):
        raise TypeError(
            f"fill={fill!r}: expected a number from 0 to 255, or one per channel; for masks write mask_fill=255"
        )
    values = (0,) if fill is None else (fill,) if isinstance(fill, (int, float)) else tuple(fill)
    are_numbers = all(isinstance(value, (int, float)) and 0 <= value <= 255 for value in values)
    if len(values) not in (1, 3, 4) or not are_numbers:
        raise ValueError(f"fill={fill!r}: expected a number from 0 to 255, or one per channel")
    whole = tuple(int(value) for value in values)
    return whole[:1] if len(set(whole)) == 1 else whole


def as_mask_fill(mask_fill: int) -> int:
    """Return the number of edges of masks. Raises ValueError for what is no whole number."""
    if not isinstance(mask_fill, (int, np.integer)) or isinstance(mask_fill, bool):
        raise ValueError(f"mask_fill={mask_fill!r}: expected a whole number, such as 255")
    return int(mask_fill)


def check_mask_fill(mask_fill: int, dtype: np.dtype[Any], *, where: str) -> None:
    """Raise SchemaError if masks of this dtype cannot hold the number of their edges."""
    if dtype.kind == "b":
        least, most = 0, 1
    elif dtype.kind in "iu":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    else:
        return
    if not least <= mask_fill <= most:
        raise SchemaError(f"{where}: mask_fill={mask_fill}: masks of {dtype} hold numbers from {least} to {most}")


def check_probability(p: object) -> None:
    """Raise ValueError for what is not a number from 0 to 1."""
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"p={p!r}: expected a probability from 0 to 1")
