"""KeepBoxes, KeepPoints: which boxes and points stay where a picture is cropped, and whether they are clipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.canvas import Canvas
from fastio.transforms.transform import Transform

__all__ = ["KeepBoxes", "KeepPoints"]

Outside = Literal["keep", "clip", "drop"]


@dataclass(frozen=True)
class KeepBoxes(Transform):
    """
    What happens to boxes: an entry of ``transforms``, wherever it stands. Without one, ``KeepBoxes()`` holds.

    Boxes are clipped to the picture, and dropped if less is left of them than ``min_size`` pixels on a side,
    ``min_area`` square pixels, or the fraction ``min_visible`` of their own area. Rows of fields "per" them are dropped
    with them. By default, this equals torchvision's ``ClampBoundingBoxes()`` and ``SanitizeBoundingBoxes()`` at the end
    of a recipe.

    ``clip=False`` leaves boxes as large as they are; what is dropped still depends on the part inside the picture.
    ``drop=False`` keeps all rows, also boxes of size 0.
    """

    min_size: float = 1.0
    min_area: float = 1.0
    min_visible: float = 0.0
    clip: bool = True
    drop: bool = True

    def __post_init__(self) -> None:
        for name in ("min_size", "min_area"):
            value = float(getattr(self, name))
            if not value >= 0:
                raise ValueError(f"{name}={value!r}: expected a number of at least 0, in pixels")
            object.__setattr__(self, name, value)
        if not 0 <= self.min_visible <= 1:
            raise ValueError(f"min_visible={self.min_visible!r}: expected a fraction from 0 to 1")
        object.__setattr__(self, "min_visible", float(self.min_visible))

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Tell the canvas; pixels do not change."""
        canvas.keep(self)


@dataclass(frozen=True)
class KeepPoints(Transform):
    """
    What happens to points outside the picture: an entry of ``transforms``, wherever it stands.

    "keep" (without this entry, too) leaves them where they are, as torchvision does; "clip" moves them to the nearest
    pixel, as its ``ClampKeyPoints``; "drop" drops rows with a point outside, with the rows of fields "per" them, as its
    ``SanitizeKeyPoints``. Points "per" boxes are dropped with their boxes, and only with them.
    """

    outside: Outside = "keep"

    def __post_init__(self) -> None:
        if self.outside not in get_args(Outside):
            raise ValueError(f"outside={self.outside!r}: expected one of {', '.join(get_args(Outside))}")

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Tell the canvas; pixels do not change."""
        canvas.keep(self)
