"""
Frames: where the pixels of pictures end up, and the boxes and points that follow them.

A frame has, per axis, a scale and an offset: position ``x`` of the stored picture becomes ``scale * x + offset``. It
also has limits, to which boxes are clipped. Clipping to each canvas in turn is one clip to limits that are carried
along, because a clip to ``[a, b]`` followed by one to ``[c, d]`` is one to ``[clip(a, c, d), clip(b, c, d)]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import BoxRule, GeometryRule, Ints, PixelFunction, PointRule, Rule, Steps
from fastio.types.schema import Field

__all__ = [
    "Frames",
    "Rows",
    "find_mismatches",
    "invert_geometry",
    "move_boxes",
    "move_targets",
]


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

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int) -> None:
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


# Targets: moves the boxes and points of many samples as their pictures were moved, and drops what is cropped away.

Keep = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """
    The values of a ragged field of ``n`` samples, joined.

    ``values`` are all rows, ``(N, ...)``; ``counts`` says how many of them each sample has, int64 ``(n,)``, in order.
    """

    values: NDArray[np.generic]
    counts: NDArray[np.int64]

    def kept(self, keep: Keep) -> Rows:
        """Return the rows for which ``keep``, ``(N,)``, is set."""
        if keep.all():
            return self
        return Rows(self.values[keep], np.bincount(self.samples[keep], minlength=len(self.counts)))

    @property
    def samples(self) -> NDArray[np.int64]:
        """The position of the sample that each row belongs to, ``(N,)``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def move_targets(fields: Iterable[Field], rows: Mapping[str, Rows], frames: Frames) -> dict[str, Rows]:
    """
    Return the rows of each field after the transforms that ``frames`` followed, for the same ``n`` samples.

    Boxes and points are moved, then clipped and dropped by the frames' rules (``KeepBoxes``, ``KeepPoints``); with a
    dropped row go the rows "per" it. Other fields stay as they are. Boxes keep their format (two corners, corner and
    size, or centre and size), and all values their dtype: whole numbers are rounded to the nearest.

    ``rows`` must have the owner of each field in it, with equal counts (see ``find_mismatches``): SchemaError if not.
    """
    known = {field.name: field for field in fields if field.name in rows}
    if not frames.is_moved:
        return dict(rows)
    moved, keep = dict(rows), dict[str, Keep]()
    for name, field in known.items():
        if field.is_box:
            moved[name], keep[name] = _moved_boxes(field, rows[name], frames)
        elif field.is_points:
            moved[name], keep[name] = _moved_points(rows[name], frames)
    for name, field in known.items():
        owner = field.owner or name  # what has an owner goes with it, not by itself
        if owner not in rows:
            raise SchemaError(f"field {name!r}: its rows are dropped with those of {owner!r}: ask for that field, too")
        if not np.array_equal(rows[name].counts, rows[owner].counts):
            raise SchemaError(f"field {name!r}: its rows belong to those of {owner!r}, but are not as many")
        if owner in keep:
            moved[name] = moved[name].kept(keep[owner])
    return moved


def find_mismatches(fields: Iterable[Field], rows: Mapping[str, Rows]) -> dict[int, tuple[str, str]]:
    """
    Return what is wrong with samples, by position: a field whose rows are not as many as those it belongs to, and a
    message.
    """
    problems: dict[int, tuple[str, str]] = {}
    for field in fields:
        if field.name not in rows or field.owner not in rows:
            continue
        counts, owned = rows[field.name].counts, rows[field.owner].counts
        for position in np.flatnonzero(counts != owned).tolist():
            message = f"{counts[position]} rows for {owned[position]} of {field.owner!r}; there must be one for each"
            problems.setdefault(position, (field.name, message))
    return problems


def _moved_boxes(field: Field, rows: Rows, frames: Frames) -> tuple[Rows, Keep]:
    """Return all boxes where the frames take them, and which of them to keep."""
    rule = frames.boxes
    samples = rows.samples
    x, y = frames.x.part(samples), frames.y.part(samples)
    boxes = rows.values.astype(np.float64)
    left, right = _sides(boxes[:, 0], boxes[:, 2], field.geometry)
    top, bottom = _sides(boxes[:, 1], boxes[:, 3], field.geometry)
    left, right = _moved_sides(left, right, x)
    top, bottom = _moved_sides(top, bottom, y)
    shown_left, shown_right = (np.clip(side, x.low, x.high) for side in (left, right))
    shown_top, shown_bottom = (np.clip(side, y.low, y.high) for side in (top, bottom))
    keep = _large_enough((shown_right - shown_left, shown_bottom - shown_top), (right - left) * (bottom - top), rule)
    if rule.clip:
        left, right, top, bottom = shown_left, shown_right, shown_top, shown_bottom
    boxes[:, 0], boxes[:, 2] = _from_sides(left, right, field.geometry)
    boxes[:, 1], boxes[:, 3] = _from_sides(top, bottom, field.geometry)
    return Rows(_as_stored(boxes, rows.values.dtype), rows.counts), keep


def _moved_points(rows: Rows, frames: Frames) -> tuple[Rows, Keep]:
    """Return all points where the frames take them, and which rows of them to keep."""
    points = rows.values.astype(np.float64)
    inside, samples = np.ones(len(points), np.bool_), rows.samples
    per_row = (-1, *[1] * (points.ndim - 2))  # a number of each row, for all points in it
    for column, (axis, size) in enumerate(((frames.x, frames.width), (frames.y, frames.height))):
        scale, offset, sizes = (
            (numbers[samples] if len(numbers) > 1 else numbers).reshape(per_row)
            for numbers in (axis.scale, axis.point_offset, size)
        )
        moved = scale * points[..., column] + offset
        if frames.points.outside == "clip":
            moved = np.clip(moved, 0, sizes - 1)
        elif frames.points.outside == "drop":
            is_inside = (moved >= 0) & (moved < sizes)
            inside &= is_inside.all(axis=tuple(range(1, is_inside.ndim)))
        points[..., column] = moved
    return Rows(_as_stored(points, rows.values.dtype), rows.counts), inside


def _sides(first: Floats, second: Floats, kind: str) -> tuple[Floats, Floats]:
    """Return both sides of boxes along an axis, from their two numbers for it."""
    if kind == "xyxy":
        return first, second
    if kind == "xywh":
        return first, first + second
    return first - second / 2, first + second / 2


def _from_sides(low: Floats, high: Floats, kind: str) -> tuple[Floats, Floats]:
    """Return the two numbers of boxes along an axis from their sides."""
    if kind == "xyxy":
        return low, high
    if kind == "xywh":
        return low, high - low
    return (low + high) / 2, high - low


def _moved_sides(low: Floats, high: Floats, axis: Axis) -> tuple[Floats, Floats]:
    """Return where both sides go; a mirrored axis exchanges them."""
    low, high = axis.scale * low + axis.offset, axis.scale * high + axis.offset
    is_mirrored = axis.scale < 0
    return np.where(is_mirrored, high, low), np.where(is_mirrored, low, high)


def _large_enough(shown: tuple[Floats, Floats], area: Floats, rule: BoxRule) -> Keep:
    """Return which boxes to keep, whose part in the picture has these sizes and which have this area as a whole."""
    width, height = shown
    if not rule.drop:
        return np.ones(len(area), np.bool_)
    keep = (width >= rule.min_size) & (height >= rule.min_size) & (width * height >= rule.min_area)
    return keep & (width * height >= rule.min_visible * area) if rule.min_visible else keep


def _as_stored(values: Floats, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """Return the values in the dtype of their field; whole numbers are rounded."""
    return (np.rint(values) if dtype.kind in "iu" else values).astype(dtype)


# Matrices of ``KeepGeometry``: their inverse, and boxes that they move.


def invert_geometry(geometry: torch.Tensor) -> torch.Tensor:
    """
    Return the matrices ``(..., 2, 3)`` that take positions in transformed pictures back to the stored ones.

    >>> invert_geometry(torch.tensor([[2.0, 0, 6], [0, 4, 8]])).tolist()
    [[0.5, 0.0, -3.0], [0.0, 0.25, -2.0]]
    """
    inverse = torch.linalg.inv(geometry[..., :2].to(torch.float64))
    offset = -inverse @ geometry[..., 2:].to(torch.float64)
    return torch.cat((inverse, offset), dim=-1).to(geometry.dtype)


def move_boxes(boxes: torch.Tensor, geometry: torch.Tensor) -> torch.Tensor:
    """
    Return boxes ``(..., N, 4)``, two corners each, where matrices ``(..., 2, 3)`` take them; nothing is clipped.

    ``move_boxes(predicted, invert_geometry(batch["geometry"]))`` are predictions in pixels of the stored pictures.
    """
    corners = boxes.reshape(*boxes.shape[:-1], 2, 2)
    moved = corners @ geometry[..., None, :, :2].mT + geometry[..., None, None, :, 2]
    # A mirrored box has left and right exchanged.
    return torch.cat((moved.amin(-2), moved.amax(-2)), dim=-1)
