"""RandomHorizontalFlip, RandomVerticalFlip and Grayscale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import check_probability
from fastio.transforms.canvas import Canvas
from fastio.transforms.transform import KeepsSize, Transform
from fastio.types.options import explains_fields

__all__ = [
    "Grayscale",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
]


@explains_fields
@dataclass(frozen=True)
class RandomHorizontalFlip(KeepsSize):
    """Flip left and right with probability ``p``. Draws one number: whether to flip."""

    p: float = 0.5
    takes_alpha: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_probability(self.p)

    @property
    def draws(self) -> int:
        """One number: whether to flip."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Flip the pictures whose number is below ``p``."""
        canvas.flip(numbers[:, 0] < self.p)


@explains_fields
@dataclass(frozen=True)
class RandomVerticalFlip(KeepsSize):
    """Flip top and bottom with probability ``p``. Draws one number: whether to flip."""

    p: float = 0.5
    takes_alpha: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_probability(self.p)

    @property
    def draws(self) -> int:
        """One number: whether to flip."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Flip the pictures whose number is below ``p``."""
        canvas.flip(numbers[:, 0] < self.p, axis="y")


# Grayscale: colour to luma.


@explains_fields
@dataclass(frozen=True)
class Grayscale(Transform):
    """Convert to luma as in Pillow's "L" (tensors too), in 1 channel or in 3 equal ones."""

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        if self.num_output_channels not in (1, 3):
            raise ValueError(f"num_output_channels={self.num_output_channels!r}: expected 1 or 3")

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        canvas.grey(self.num_output_channels)
