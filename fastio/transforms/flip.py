"""RandomHorizontalFlip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.canvas import Canvas
from fastio.transforms.transform import Transform
from fastio.types.option_names import explains_fields

__all__ = ["RandomHorizontalFlip"]


@explains_fields
@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Flip left and right with probability ``p``. Draws one number: whether to flip."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.p, (int, float)) or not 0 <= self.p <= 1:
            raise ValueError(f"p={self.p!r}: expected a probability from 0 to 1")

    @property
    def draws(self) -> int:
        """One number: whether to flip."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Flip the pictures whose number is below ``p``."""
        canvas.flip(numbers[:, 0] < self.p)
