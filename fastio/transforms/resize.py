"""Resize: to a size, or to a short side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import Interpolation, as_kernel, as_size, check_antialias
from fastio.transforms.canvas import Canvas, Ints
from fastio.transforms.transform import Transform
from fastio.types.option_names import explains_fields

__all__ = ["Resize"]


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
