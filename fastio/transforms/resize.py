"""Pictures brought to a size: Resize, Letterbox, Pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import (
    Interpolation,
    as_fill,
    as_kernel,
    as_mask_fill,
    as_padding,
    as_size,
    check_antialias,
)
from fastio.transforms.canvas import Canvas, Ints
from fastio.transforms.transform import Transform
from fastio.types.options import brief_repr, explains_fields

__all__ = [
    "Letterbox",
    "Pad",
    "Resize",
]


@explains_fields
@dataclass(frozen=True)
class Resize(Transform):
    """
    Resize to ``(height, width)``; a single number resizes the short side and keeps the proportions.

    ``max_size`` then limits the long side; with ``size=None``, the long side becomes exactly ``max_size``.
    ``interpolation`` is "bilinear", "bicubic", "box", "lanczos", "hamming" or "nearest", or Pillow's or torchvision's
    constant for one of these; always antialiased, so ``antialias=False`` raises ValueError.
    """

    size: int | Sequence[int] | None
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        if self.size is not None:
            sizes = as_size(self.size)
            is_short_side = isinstance(self.size, int) or len(self.size) == 1
            object.__setattr__(self, "size", sizes[0] if is_short_side else sizes)
        if self.size is None and self.max_size is None:
            raise ValueError("size=None: expected a size, or max_size")
        if self.max_size is not None:
            as_size(self.max_size)
            if isinstance(self.size, tuple):
                raise ValueError(f"max_size={self.max_size}: only for a size of one number, got {self.size}")
            if isinstance(self.size, int) and self.max_size <= self.size:
                raise ValueError(f"max_size={self.max_size}: expected more than the short side, size={self.size}")

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        if isinstance(self.size, tuple):
            height, width = (np.array([side]) for side in self.size)
        else:
            short, long = self._sides(np.minimum(canvas.width, canvas.height), np.maximum(canvas.width, canvas.height))
            is_upright = canvas.width <= canvas.height
            height, width = np.where(is_upright, long, short), np.where(is_upright, short, long)
        canvas.resize(width, height, kernel=self.interpolation)

    def _sides(self, short: Ints, long: Ints) -> tuple[Ints, Ints]:
        """Return the new short and long side, truncated as in torchvision; no side becomes 0."""
        if self.size is None:
            assert self.max_size is not None
            new_short, new_long = _whole(self.max_size * short / long), np.full_like(long, self.max_size)
        else:
            assert isinstance(self.size, int)
            new_short, new_long = np.full_like(short, self.size), _whole(self.size * long / short)
            if self.max_size is not None:
                too_long = new_long > self.max_size
                new_short = np.where(too_long, _whole(self.max_size * new_short / new_long), new_short)
                new_long = np.where(too_long, self.max_size, new_long)
        return new_short, new_long


def _whole(sides: NDArray[np.float64]) -> Ints:
    return np.maximum(sides.astype(np.int64), 1)


# Letterbox: resizes to fit into a size, and adds edges to what is left of it.

Position = Literal["center", "top-left"]


@explains_fields
@dataclass(frozen=True, repr=False)
class Letterbox(Transform):
    """
    Resize to fit into ``size``, (height, width) or one number for both, and fill the rest with edges.

    Proportions stay. The picture stands in the centre, or in the upper left corner (``position="top-left"``), where
    boxes need no shift. ``upscale=False`` leaves pictures that fit as large as they are. ``fill`` is one number or one
    per channel, ``mask_fill`` the number of the edges of masks. ``KeepGeometry`` gives the matrix by which predictions
    are taken back to the stored picture.
    """

    size: int | Sequence[int]
    fill: float | Sequence[float] | None = 0
    interpolation: Interpolation = "bilinear"
    position: Position = "center"
    upscale: bool = True
    mask_fill: int = 0

    def __repr__(self) -> str:
        """Leave out edges of masks that are 0."""
        return brief_repr(self, newer=("mask_fill",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask_fill", as_mask_fill(self.mask_fill))
        object.__setattr__(self, "size", as_size(self.size))
        object.__setattr__(self, "fill", as_fill(self.fill))
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        if self.position not in get_args(Position):
            raise ValueError(f"position={self.position!r}: expected one of {', '.join(get_args(Position))}")

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once, then add edges."""
        assert isinstance(self.size, tuple)
        assert isinstance(self.fill, tuple)
        height, width = self.size
        scale = np.minimum(height / canvas.height, width / canvas.width)
        if not self.upscale:
            scale = np.minimum(scale, 1.0)
        new_height, new_width = (
            np.clip(np.rint(old * scale), 1, most).astype(np.int64)
            for old, most in ((canvas.height, height), (canvas.width, width))
        )
        canvas.resize(new_width, new_height, kernel=self.interpolation)
        spare_x, spare_y = width - new_width, height - new_height
        left, top = (spare // 2 if self.position == "center" else spare * 0 for spare in (spare_x, spare_y))
        canvas.pad(left, top, spare_x - left, spare_y - top, fill=self.fill, mask_fill=self.mask_fill)


# Pad: adds edges of one colour.


@explains_fields
@dataclass(frozen=True, repr=False)
class Pad(Transform):
    """
    Add edges of ``padding`` pixels: left, top, right, bottom; two numbers (left and right, top and bottom); or one.

    ``fill``, from 0 to 255, is one number or one per channel, ``mask_fill`` the number of the edges of masks.
    """

    padding: int | Sequence[int]
    fill: float | Sequence[float] | None = 0
    padding_mode: str = "constant"
    mask_fill: int = 0

    def __repr__(self) -> str:
        """Leave out edges of masks that are 0."""
        return brief_repr(self, newer=("mask_fill",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask_fill", as_mask_fill(self.mask_fill))
        object.__setattr__(self, "padding", as_padding(self.padding))
        object.__setattr__(self, "fill", as_fill(self.fill, self.padding_mode))

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        assert isinstance(self.padding, tuple)
        assert isinstance(self.fill, tuple)
        left, top, right, bottom = (np.array([side]) for side in self.padding)
        canvas.pad(left, top, right, bottom, fill=self.fill, mask_fill=self.mask_fill)
