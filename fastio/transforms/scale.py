"""Pictures of random size: RandomResize, RandomShortestSize, ScaleJitter, RandomZoomOut, as detectors are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import Interpolation, as_fill, as_kernel, as_mask_fill, as_size, check_antialias
from fastio.transforms.canvas import Canvas, Ints
from fastio.transforms.transform import Transform
from fastio.types.options import explains_fields

__all__ = ["RandomResize", "RandomShortestSize", "RandomZoomOut", "ScaleJitter"]


@explains_fields
@dataclass(frozen=True)
class RandomResize(Transform):
    """
    Resize the short side to a whole number from ``min_size`` to ``max_size - 1``, all equally likely, as torchvision.

    Proportions stay, so pictures differ in size: let RandomCrop(size, pad_if_needed=True) follow, or another crop, to
    have batches. Draws one number: the size.
    """

    min_size: int
    max_size: int
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        as_size(self.min_size)
        if as_size(self.max_size) <= as_size(self.min_size):
            raise ValueError(f"max_size={self.max_size!r}: expected more than min_size={self.min_size!r}")

    @property
    def draws(self) -> int:
        """One number: the size."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once."""
        size = self.min_size + (numbers[:, 0] * (self.max_size - self.min_size)).astype(np.int64)
        short, long = np.minimum(canvas.height, canvas.width), np.maximum(canvas.height, canvas.width)
        other = _whole(size * long / short)
        is_upright = canvas.width <= canvas.height
        width, height = np.where(is_upright, size, other), np.where(is_upright, other, size)
        canvas.resize(width, height, kernel=self.interpolation)


@explains_fields
@dataclass(frozen=True)
class RandomShortestSize(Transform):
    """
    Resize the short side to one of the sizes ``min_size``, all equally likely, as torchvision.

    Proportions stay; ``max_size`` limits the long side. Pictures differ in size, as with RandomResize. Draws one
    number: which size.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        sizes = (self.min_size,) if isinstance(self.min_size, int) else tuple(self.min_size)
        if not sizes:
            raise ValueError("min_size=[]: expected a size, or several")
        for size in (*sizes, *(() if self.max_size is None else (self.max_size,))):
            as_size(size)
        object.__setattr__(self, "min_size", sizes)

    @property
    def draws(self) -> int:
        """One number: which size."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once."""
        sizes = np.array(self.min_size)
        scale = sizes[(numbers[:, 0] * len(sizes)).astype(np.int64)] / np.minimum(canvas.height, canvas.width)
        if self.max_size is not None:
            scale = np.minimum(scale, self.max_size / np.maximum(canvas.height, canvas.width))
        canvas.resize(_whole(canvas.width * scale), _whole(canvas.height * scale), kernel=self.interpolation)


@explains_fields
@dataclass(frozen=True)
class ScaleJitter(Transform):
    """
    Resize to fit ``target_size``, times a random factor within ``scale_range``: large scale jitter, as torchvision.

    The factor that fits is ``min(target_size[1] / height, target_size[0] / width)``, torchvision's order of the two.
    Proportions stay; RandomCrop(size, pad_if_needed=True) behind it makes pictures of one size. Draws one number: the
    factor.
    """

    target_size: int | Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_size", as_size(self.target_size))
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        object.__setattr__(self, "scale_range", _range("scale_range", self.scale_range, least=0.0))

    @property
    def draws(self) -> int:
        """One number: the factor."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once."""
        assert isinstance(self.target_size, tuple)
        low, high = self.scale_range
        scale = np.minimum(self.target_size[1] / canvas.height, self.target_size[0] / canvas.width)
        scale = scale * (low + (high - low) * numbers[:, 0])
        canvas.resize(_whole(canvas.width * scale), _whole(canvas.height * scale), kernel=self.interpolation)


@explains_fields
@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """
    With probability ``p``, put the picture somewhere on a canvas that is larger by a factor within ``side_range``.

    The canvas has the colour ``fill``, and in masks the number ``mask_fill``. Behind Resize it is faster in FastLoader,
    which otherwise decodes the whole picture and resamples edges, too. Draws four numbers: whether, the factor, left,
    top.
    """

    fill: float | Sequence[float] | None = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5
    mask_fill: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fill", as_fill(self.fill))
        object.__setattr__(self, "mask_fill", as_mask_fill(self.mask_fill))
        object.__setattr__(self, "side_range", _range("side_range", self.side_range, least=1.0))
        if not isinstance(self.p, (int, float)) or not 0 <= self.p <= 1:
            raise ValueError(f"p={self.p!r}: expected a probability from 0 to 1")

    @property
    def draws(self) -> int:
        """Four numbers: whether, the factor, left, top."""
        return 4

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Add edges."""
        assert isinstance(self.fill, tuple)
        low, high = self.side_range
        factor = np.where(numbers[:, 0] < self.p, low + (high - low) * numbers[:, 1], 1.0)
        spare_x, spare_y = ((side * factor).astype(np.int64) - side for side in (canvas.width, canvas.height))
        left, top = (spare_x * numbers[:, 2]).astype(np.int64), (spare_y * numbers[:, 3]).astype(np.int64)
        canvas.pad(left, top, spare_x - left, spare_y - top, fill=self.fill, mask_fill=self.mask_fill)


def _range(name: str, limits: Sequence[float], *, least: float) -> tuple[float, float]:
    """Return two numbers in ascending order. Raises ValueError for others."""
    if not isinstance(limits, Sequence) or len(limits) != 2 or not least <= limits[0] <= limits[1] < np.inf:
        raise ValueError(f"{name}={limits!r}: expected two numbers of at least {least}, the smaller one first")
    return float(limits[0]), float(limits[1])


def _whole(sides: NDArray[np.float64]) -> Ints:
    return np.maximum(sides.astype(np.int64), 1)
