"""Boxes and points, step by step: what torchvision v2 documents for each transform, in plain Python for one sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.canvas import AxisName, Ints
from fastio.transforms.matrices import Warp

__all__ = ["StepByStep", "sanitized", "to_xyxy"]


def to_xyxy(box: list[float], role: str) -> list[float]:
    """Two corners, from any format."""
    a, b, c, d = box
    if role == "xyxy":
        return [a, b, c, d]
    if role == "xywh":
        return [a, b, a + c, b + d]
    return [a - c / 2, b - d / 2, a + c / 2, b + d / 2]


def from_xyxy(box: list[float], role: str) -> list[float]:
    """The format again, from two corners."""
    x1, y1, x2, y2 = box
    if role == "xyxy":
        return [x1, y1, x2, y2]
    if role == "xywh":
        return [x1, y1, x2 - x1, y2 - y1]
    return [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]


class StepByStep:
    """A canvas without pixels: each step changes each box (two corners) and point of one picture."""

    def __init__(self, size: tuple[int, int], boxes: list[list[float]], points: list[list[float]]) -> None:
        self.height, self.width = np.array([size[0]]), np.array([size[1]])
        self.boxes, self.points = [list(box) for box in boxes], [list(point) for point in points]
        self.doing: object = None

    def _size(self) -> tuple[int, int]:
        return int(self.width[0]), int(self.height[0])

    def _shift(self, x: int, y: int) -> None:
        self.boxes = [[a + x, b + y, c + x, d + y] for a, b, c, d in self.boxes]
        self.points = [[a + x, b + y] for a, b in self.points]

    def clamp(self) -> None:
        """Corners move into the picture."""
        w, h = self._size()
        self.boxes = [
            [min(max(a, 0), w), min(max(b, 0), h), min(max(c, 0), w), min(max(d, 0), h)] for a, b, c, d in self.boxes
        ]

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        self._shift(-int(left[0]), -int(top[0]))
        self.width, self.height = width, height
        self.clamp()

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        w, h = self._size()
        x, y = int(width[0]) / w, int(height[0]) / h
        self.boxes = [[a * x, b * y, c * x, d * y] for a, b, c, d in self.boxes]
        self.points = [[a * x, b * y] for a, b in self.points]
        self.width, self.height = width, height

    def pad(
        self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: tuple[int, ...], mask_fill: int = 0
    ) -> None:
        self._shift(int(left[0]), int(top[0]))
        self.width, self.height = self.width + left + right, self.height + top + bottom
        self.clamp()

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        w, h = self._size()
        if mask[0] and axis == "y":
            self.boxes = [[a, h - d, c, h - b] for a, b, c, d in self.boxes]
            self.points = [[a, h - 1 - b] for a, b in self.points]
        elif mask[0]:
            self.boxes = [[w - c, b, w - a, d] for a, b, c, d in self.boxes]
            self.points = [[w - 1 - a, b] for a, b in self.points]

    def warp(self, warp: Warp) -> None:
        """Positions through the inverse of the matrix by which pixels are read; a box around its corners."""
        w, h = self._size()
        (matrix,) = np.linalg.inv(warp.from_corner(np.array([h]), np.array([w])))

        def moved(x: float, y: float) -> list[float]:
            a, b, c = matrix @ [x, y, 1]
            return [float(a / c), float(b / c)]

        if warp.kinds[0]:
            corners = [[moved(a, b), moved(c, b), moved(a, d), moved(c, d)] for a, b, c, d in self.boxes]
            around = [[*np.min(four, axis=0).tolist(), *np.max(four, axis=0).tolist()] for four in corners]
            # Of a box outside the picture a line is left, which must not become a box again.
            self.boxes = [
                box if c > a and d > b else [0.0] * 4 for (a, b, c, d), box in zip(self.boxes, around, strict=True)
            ]
            self.points = [moved(*point) for point in self.points]
            self.clamp()

    def grey(self, channels: int) -> None:
        """Colours have no place."""

    def call(self, function: object, numbers: NDArray[np.float64]) -> None:
        """Pixels have no place."""

    def keep(self, rule: object) -> None:
        """The test drops boxes itself."""


def sanitized(boxes: list[list[float]], *, min_size: float = 1, min_area: float = 1) -> list[bool]:
    """Whether boxes are large enough to stay."""
    sides = [(c - a, d - b) for a, b, c, d in boxes]
    return [w >= min_size and h >= min_size and w * h >= min_area for w, h in sides]
