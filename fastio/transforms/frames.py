"""Frames: where the pixels of pictures end up, so that boxes and points can follow them.

A frame has, per axis, a scale and an offset: position ``x`` of the stored picture becomes ``scale * x + offset``. It
also has limits, to which boxes are clipped. Clipping to each canvas in turn is one clip to limits that are carried
along, because a clip to ``[a, b]`` followed by one to ``[c, d]`` is one to ``[clip(a, c, d), clip(b, c, d)]``.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import Ints, PixelFunction, Steps
from fastio.transforms.rules import BoxRule, GeometryRule, PointRule, Rule

__all__ = ["Axis", "Frames"]

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Axis:
    """
    One axis of the frames of some pictures: float64 ``(n,)``, or ``(1,)`` if all are equal.

    The scale of a mirrored axis is negative. Points have an offset of their own: mirrored, position 0 of a point
    becomes ``size - 1``, the last pixel, whereas the edge of a box at 0 becomes ``size``.
    """

    scale: Floats
    offset: Floats
    point_offset: Floats
    low: Floats
    high: Floats

    @classmethod
    def unmoved(cls) -> Axis:
        """Return the axis of stored pictures, which does not clip."""
        zero = np.zeros(1)
        return cls(np.ones(1), zero, zero, np.full(1, -np.inf), np.full(1, np.inf))

    def shift(self, distance: Ints) -> None:
        """Add a distance to all positions."""
        self.offset, self.point_offset = self.offset + distance, self.point_offset + distance
        self.low, self.high = self.low + distance, self.high + distance

    def stretch(self, factor: Floats) -> None:
        """Multiply all positions."""
        self.scale, self.offset, self.point_offset = (
            self.scale * factor,
            self.offset * factor,
            self.point_offset * factor,
        )
        self.low, self.high = self.low * factor, self.high * factor

    def mirror(self, mask: NDArray[np.bool_], size: Ints) -> None:
        """Exchange left and right of a canvas of this size, where ``mask`` is set."""
        self.scale = np.where(mask, -self.scale, self.scale)
        self.offset = np.where(mask, size - self.offset, self.offset)
        self.point_offset = np.where(mask, size - 1 - self.point_offset, self.point_offset)
        self.low, self.high = np.where(mask, size - self.high, self.low), np.where(mask, size - self.low, self.high)

    def clip(self, size: Ints) -> None:
        """Clip boxes to ``[0, size]``."""
        self.low, self.high = np.clip(self.low, 0, size), np.clip(self.high, 0, size)

    def blank(self, mask: NDArray[np.bool_]) -> None:
        """Take all positions to 0 where ``mask`` is set."""
        for name in ("scale", "offset", "point_offset", "low", "high"):
            setattr(self, name, np.where(mask, 0.0, getattr(self, name)))

    def part(self, part: slice | NDArray[np.int64]) -> Axis:
        """Return the axis of some of the pictures, by position; what is equal for all stays ``(1,)``."""
        columns = (self.scale, self.offset, self.point_offset, self.low, self.high)
        return Axis(*(column[part] if len(column) > 1 else column for column in columns))


class Frames:
    """
    A canvas without pixels: it records where pictures of these sizes, ``(n,)`` or ``(1,)`` each, end up.

    ``boxes`` and ``points`` are the rules for them, by default those of ``KeepBoxes()`` and ``KeepPoints()``.
    ``is_moved`` is False if no step changes positions and no rule is given: boxes then stay as they are stored.
    ``keeps_geometry``: samples get the matrix (``affine``), see ``KeepGeometry``.
    """

    def __init__(self, height: Ints, width: Ints) -> None:
        self.height, self.width = height, width
        self.doing: object = None
        self.x, self.y = Axis.unmoved(), Axis.unmoved()
        self.boxes, self.points = BoxRule(), PointRule()
        self.is_moved = False
        self.keeps_geometry = False

    def follow(self, transform: Steps, numbers: NDArray[np.float64]) -> None:
        """Run a transform with these numbers, ``(n, draws)``, then clip boxes to what it leaves of the pictures."""
        self.doing = transform
        transform.run(self, numbers)
        self.clip()

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        self.x.shift(-left)
        self.y.shift(-top)
        self._resized(height, width)
        self.clip()

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        """Follow a resampling by any kernel."""
        self.x.stretch(width / np.maximum(self.width, 1))
        self.y.stretch(height / np.maximum(self.height, 1))
        self._resized(height, width)

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill) -> None:
        self.x.shift(left)
        self.y.shift(top)
        self._resized(self.height + top + bottom, self.width + left + right)
        self.clip()

    def flip(self, mask: NDArray[np.bool_]) -> None:
        self.x.mirror(mask, self.width)
        self.is_moved = True

    def grey(self, channels: int) -> None:
        """Do nothing: colours have no place."""

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Do nothing: a function changes pixels, not their places."""

    def keep(self, rule: Rule) -> None:
        """Follow this rule instead of the default, or of an earlier one of its kind."""
        if isinstance(rule, GeometryRule):
            self.keeps_geometry = True
            return
        if isinstance(rule, BoxRule):
            self.boxes = rule
        else:
            self.points = rule
        self.is_moved = True

    def clip(self) -> None:
        """Clip boxes to what the steps so far leave of the pictures."""
        self.x.clip(self.width)
        self.y.clip(self.height)

    def blank(self, mask: NDArray[np.bool_]) -> None:
        """Make the pictures for which ``mask``, ``(n,)``, is set empty: all that was in them goes to one point."""
        self.height, self.width = np.where(mask, 0, self.height), np.where(mask, 0, self.width)
        self.x.blank(mask)
        self.y.blank(mask)

    def part(self, part: slice | NDArray[np.int64]) -> Frames:
        """Return the frames of some of the pictures, by position."""
        some = copy(self)
        some.height, some.width = (side[part] if len(side) > 1 else side for side in (self.height, self.width))
        some.x, some.y = self.x.part(part), self.y.part(part)
        return some

    def affine(self, count: int) -> NDArray[np.float32]:
        """
        Return ``(count, 2, 3)`` float32: for each picture the matrix that takes positions ``(x, y, 1)`` of boxes in
        the stored picture to positions in the transformed one.
        """
        matrices = np.zeros((count, 2, 3), np.float32)
        for row, axis in enumerate((self.x, self.y)):
            matrices[:, row, row], matrices[:, row, 2] = axis.scale, axis.offset
        return matrices

    def _resized(self, height: Ints, width: Ints) -> None:
        self.height, self.width = height, width
        self.is_moved = True
