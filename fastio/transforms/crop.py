"""Crops: from the centre, at random, and of random size and shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from fastio.transforms.canvas import Canvas, Ints, RefusedPicturesError
from fastio.transforms.transform import Transform
from fastio.types.options import brief_repr, explains_fields

__all__ = ["CenterCrop", "RandomCrop", "RandomResizedCrop"]

_TRIES = 10


@explains_fields
@dataclass(frozen=True, repr=False)
class CenterCrop(Transform):
    """
    Crop the centre to ``size``, (height, width) or one number for both; a smaller picture gets edges.

    They have the colour ``fill``, one number or one per channel; those of masks the number ``mask_fill``.
    """

    size: int | Sequence[int]
    fill: float | Sequence[float] | None = 0
    mask_fill: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_size(self.size))
        as_fill(self.fill)
        object.__setattr__(self, "mask_fill", as_mask_fill(self.mask_fill))

    def __repr__(self) -> str:
        """Leave out edges that are 0."""
        return brief_repr(self, newer=("fill", "mask_fill"))

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Add edges, then crop."""
        assert isinstance(self.size, tuple)
        height, width = (np.array([side]) for side in self.size)
        lacks_x, lacks_y = np.maximum(width - canvas.width, 0), np.maximum(height - canvas.height, 0)
        sides = (lacks_x // 2, lacks_y // 2, (lacks_x + 1) // 2, (lacks_y + 1) // 2)
        canvas.pad(*sides, fill=as_fill(self.fill), mask_fill=self.mask_fill)
        left, top = np.rint((canvas.width - width) / 2), np.rint((canvas.height - height) / 2)
        canvas.crop(left.astype(np.int64), top.astype(np.int64), width=width, height=height)


@explains_fields
@dataclass(frozen=True, repr=False)
class RandomCrop(Transform):
    """
    Crop ``size``, (height, width) or one number for both, at a random position, all positions equally likely.

    ``padding`` (left, top, right, bottom; two numbers or one mean equal sides) is added first, in the colour ``fill``,
    to masks with the number ``mask_fill``; ``pad_if_needed`` then adds what is missing, on both sides. A picture that
    is still too small is refused: it is a bad sample of a loader, and SchemaError elsewhere. Draws two numbers: top,
    left.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: float | Sequence[float] | None = 0
    padding_mode: str = "constant"
    mask_fill: int = 0

    def __repr__(self) -> str:
        """Leave out edges of masks that are 0."""
        return brief_repr(self, newer=("mask_fill",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_size(self.size))
        object.__setattr__(self, "mask_fill", as_mask_fill(self.mask_fill))
        if self.padding is not None:
            object.__setattr__(self, "padding", as_padding(self.padding))
        object.__setattr__(self, "fill", as_fill(self.fill, self.padding_mode))

    @property
    def draws(self) -> int:
        """Two numbers: top, left."""
        return 2

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Add edges, then crop. Raises RefusedPicturesError for pictures that are too small."""
        assert isinstance(self.size, tuple)
        height, width = (np.array([side]) for side in self.size)
        self._pad(canvas, width, height)
        spare_x, spare_y = canvas.width - width, canvas.height - height
        too_small = np.broadcast_to((spare_x < 0) | (spare_y < 0), np.broadcast(spare_x, spare_y).shape)
        if too_small.any():
            at = int(too_small.argmax())
            sizes = [int(np.broadcast_to(each, too_small.shape)[at]) for each in (canvas.height, canvas.width)]
            remedy = "pass pad_if_needed=True, or resize first"
            raise RefusedPicturesError(
                f"{self}: a picture of {sizes[0]}x{sizes[1]} (height x width, with padding) is smaller than the crop: "
                f"{remedy}",
                reason=f"{self}: the picture, with padding, is smaller than the crop: {remedy}",
                refused=too_small,
            )
        canvas.crop(_below(numbers[:, 1], spare_x + 1), _below(numbers[:, 0], spare_y + 1), width=width, height=height)

    def _pad(self, canvas: Canvas, width: Ints, height: Ints) -> None:
        assert isinstance(self.fill, tuple)
        left, top, right, bottom = self.padding if isinstance(self.padding, tuple) else (0, 0, 0, 0)
        more_x, more_y = np.zeros(1, np.int64), np.zeros(1, np.int64)
        if self.pad_if_needed:
            more_x = np.maximum(width - (canvas.width + left + right), 0)
            more_y = np.maximum(height - (canvas.height + top + bottom), 0)
        sides = (more_x + left, more_y + top, more_x + right, more_y + bottom)
        canvas.pad(*sides, fill=self.fill, mask_fill=self.mask_fill)


@explains_fields
@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """
    Crop a part of random area and proportions and resize it to ``size``, (height, width) or one number for both.

    ``scale`` is the range of the area as a fraction of the picture's, ``ratio`` the range of width by height, drawn
    uniformly in its logarithm. A part that does not fit is drawn again, ten times in all; then the largest central
    part within ``ratio`` is taken. Draws: top, left, then area and proportions of each try.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_size(self.size))
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        for name, limits in (("scale", self.scale), ("ratio", self.ratio)):
            if not isinstance(limits, Sequence) or len(limits) != 2 or not 0 < limits[0] <= limits[1] < math.inf:
                raise ValueError(f"{name}={limits!r}: expected two numbers above 0, the smaller one first")
            object.__setattr__(self, name, (float(limits[0]), float(limits[1])))

    @property
    def draws(self) -> int:
        """Two for the position, and two for each try."""
        return 2 + 2 * _TRIES

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Crop, then resample once."""
        assert isinstance(self.size, tuple)
        shape = (len(numbers),)
        height, width = self.parts(
            np.broadcast_to(canvas.height, shape), np.broadcast_to(canvas.width, shape), numbers[:, 2:]
        )
        fallback = width == 0
        left, top = _below(numbers[:, 1], canvas.width - width + 1), _below(numbers[:, 0], canvas.height - height + 1)
        if fallback.any():
            central_height, central_width = self._central(canvas.height, canvas.width)
            height, width = np.where(fallback, central_height, height), np.where(fallback, central_width, width)
            left = np.where(fallback, (canvas.width - width) // 2, left)
            top = np.where(fallback, (canvas.height - height) // 2, top)
        canvas.crop(left, top, width=width, height=height)
        canvas.resize(np.array([self.size[1]]), np.array([self.size[0]]), kernel=self.interpolation)

    def parts(self, height: Ints, width: Ints, numbers: NDArray[np.float64]) -> tuple[Ints, Ints]:
        """Return height and width of each picture's first try that fits, ``(n,)``; 0 if none fits."""
        chosen_height, chosen_width = np.zeros(len(height), np.int64), np.zeros(len(height), np.int64)
        still = np.arange(len(height))
        low, high = self.scale
        log_low, log_high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for attempt in range(_TRIES):
            area = (height[still] * width[still]) * (low + (high - low) * numbers[still, 2 * attempt])
            ratio = np.exp(log_low + (log_high - log_low) * numbers[still, 2 * attempt + 1])
            wide, tall = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
            fits = (wide > 0) & (wide <= width[still]) & (tall > 0) & (tall <= height[still])
            chosen_width[still[fits]], chosen_height[still[fits]] = wide[fits], tall[fits]
            still = still[~fits]
            if len(still) == 0:
                break
        return chosen_height, chosen_width

    def _central(self, height: Ints, width: Ints) -> tuple[Ints, Ints]:
        """Return height and width of the largest part with proportions within ``ratio``."""
        least, most = self.ratio
        ratio = width / height
        tall = np.where(ratio < least, np.maximum(np.rint(width / least), 1), height)
        wide = np.where(ratio > most, np.maximum(np.rint(height * most), 1), width)
        return tall.astype(np.int64), wide.astype(np.int64)


def _below(numbers: NDArray[np.float64], limit: Ints) -> Ints:
    """Turn uniform numbers into integers from 0 to ``limit - 1``, equally likely."""
    return (numbers * limit).astype(np.int64)
