"""Letterbox: resizes to fit into a size, and adds edges to what is left of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import NO_MASK_FILL, Interpolation, as_fill, as_kernel, as_size
from fastio.transforms.canvas import Canvas
from fastio.transforms.transform import Transform
from fastio.types.option_names import explains_fields

__all__ = ["Letterbox"]

Position = Literal["center", "top-left"]


@explains_fields
@dataclass(frozen=True)
class Letterbox(Transform):
    """
    Resize to fit into ``size``, (height, width) or one number for both, and fill the rest with edges.

    Proportions stay. The picture stands in the centre, or in the upper left corner (``position="top-left"``), where
    boxes need no shift. ``upscale=False`` leaves pictures that fit as large as they are. ``fill`` is one number or one
    per channel. ``KeepGeometry`` gives the matrix by which predictions are taken back to the stored picture.
    """

    _ELSEWHERE: ClassVar[Mapping[str, str]] = NO_MASK_FILL

    size: int | Sequence[int]
    fill: float | Sequence[float] | None = 0
    interpolation: Interpolation = "bilinear"
    position: Position = "center"
    upscale: bool = True

    def __post_init__(self) -> None:
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
        canvas.pad(left, top, spare_x - left, spare_y - top, fill=self.fill)
