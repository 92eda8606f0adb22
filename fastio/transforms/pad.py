"""Pad: adds edges of one colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import NO_MASK_FILL, as_fill, as_padding
from fastio.transforms.canvas import Canvas
from fastio.transforms.transform import Transform
from fastio.types.option_names import explains_fields

__all__ = ["Pad"]


@explains_fields
@dataclass(frozen=True)
class Pad(Transform):
    """
    Add edges of ``padding`` pixels: left, top, right, bottom; two numbers (left and right, top and bottom); or one.

    ``fill``, from 0 to 255, is one number or one per channel.
    """

    _ELSEWHERE: ClassVar[Mapping[str, str]] = NO_MASK_FILL

    padding: int | Sequence[int]
    fill: float | Sequence[float] | None = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", as_padding(self.padding))
        object.__setattr__(self, "fill", as_fill(self.fill, self.padding_mode))

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        assert isinstance(self.padding, tuple)
        assert isinstance(self.fill, tuple)
        left, top, right, bottom = (np.array([side]) for side in self.padding)
        canvas.pad(left, top, right, bottom, fill=self.fill)
