"""
Frames: where the pixels of pictures end up, and the boxes and points that follow them.

A frame has, per axis, a scale and an offset: position ``x`` of the stored picture becomes ``scale * x + offset``. It
also has limits, to which boxes are clipped. Clipping to each canvas in turn is one clip to limits that are carried
along, because a clip to ``[a, b]`` followed by one to ``[c, d]`` is one to ``[clip(a, c, d), clip(b, c, d)]``.

A warp takes each position elsewhere by a matrix, and a box to the one around its four corners: what came before it is
kept as a stage, and axes begin anew behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import (
    AxisName,
    Boxes,
    BoxRule,
    CropRule,
    GeometryRule,
    Ints,
    PixelFunction,
    PointRule,
    Rule,
    Steps,
)
from fastio.transforms.matrices import Warp
from fastio.transforms.program import Step
from fastio.types.schema import Field
from fastio.types.spans import elements_of, firsts_of

__all__ = [
    "Frames",
    "FramesByMember",
    "Rows",
    "find_mismatches",
    "invert_geometry",
    "move_boxes",
    "move_targets",
]


Floats = NDArray[np.float64]

_FAR = 1 << 24  # pixels: no position is farther outside, so that all fit integers of 32 bits


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


@dataclass(frozen=True, slots=True)
class Stage:
    """
    What happened to pictures up to a warp, and the warp's matrices ``(n, 3, 3)``, up to a factor each.

    ``inside`` are left, top, right and bottom, ``(n, 4)``, of the part in which boxes have their centre that are kept.
    """

    x: Axis
    y: Axis
    matrices: Floats
    inside: Floats | None = None

    def part(self, part: slice | NDArray[np.int64]) -> Stage:
        """Return the stage of some of the pictures, by position."""
        matrices = self.matrices[part] if len(self.matrices) > 1 else self.matrices
        return Stage(self.x.part(part), self.y.part(part), matrices, None if self.inside is None else self.inside[part])


class Frames:
    """
    A canvas without pixels: it records where pictures of these sizes, ``(n,)`` or ``(1,)`` each, end up.

    ``boxes`` and ``points`` are the rules for them, by default those of ``KeepBoxes()`` and ``KeepPoints()``.
    ``is_moved`` is False if no step changes positions and no rule is given: boxes then stay as they are stored.
    ``adds`` names the fields that samples get (``added``): see ``KeepGeometry`` and ``KeepCrop``.
    """

    def __init__(self, height: Ints, width: Ints) -> None:
        self.height, self.width = height, width
        self.stored_height, self.stored_width = height, width
        self.doing: object = None
        self.stages: list[Stage] = []
        self.x, self.y = Axis.unmoved(), Axis.unmoved()
        self.bender: object = None  # a transform by which straight lines may meet
        self.boxes, self.points = BoxRule(), PointRule()
        self.is_moved = False
        self.adds: tuple[str, ...] = ()
        self.limits: tuple[Axis, Axis] | None = None  # of the part that points are inside of; None: the whole canvas
        self._known: tuple[Field, Rows] | None = None

    def know(self, field: Field, boxes: Rows) -> None:
        """Let transforms ask for these boxes of the pictures as stored."""
        self._known = field, boxes

    def boxes_now(self) -> Boxes | None:
        """Return the boxes that it knows where they are now; dropped ones are empty."""
        if self._known is None:
            return None
        field, rows = self._known
        _, shown = _followed(_Box.of(rows.values.astype(np.float64), field), self.part(rows.samples))
        return np.stack([shown.left, shown.top, shown.right, shown.bottom], axis=1), rows.samples

    def drop_outside(self, left: Ints, top: Ints, *, width: Ints, height: Ints, mask: NDArray[np.bool_]) -> None:
        """Keep a stage that says which centres are inside."""
        sides = np.broadcast_arrays(left, top, left + width, top + height, mask)
        inside = np.stack(sides[:4], axis=1).astype(np.float64)
        inside[~sides[4]] = [-np.inf, -np.inf, np.inf, np.inf]
        self.stages.append(Stage(self.x, self.y, np.eye(3)[None], inside))
        self.x, self.y = Axis.unmoved(), Axis.unmoved()

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

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        self.x.shift(left)
        self.y.shift(top)
        self._resized(self.height + top + bottom, self.width + left + right)
        self.clip()

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        if axis == "x":
            self.x.mirror(mask, self.width)
        else:
            self.y.mirror(mask, self.height)
        if self.limits is not None:
            self.limits[axis == "y"].mirror(mask, self.width if axis == "x" else self.height)
        self.is_moved = True

    def limit(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        """Count points as outside that are outside this part of the canvas. Only flips may follow."""
        zero = np.zeros(1)
        x, y = (
            Axis(np.ones(1), zero, zero, low.astype(np.float64), (low + size).astype(np.float64))
            for low, size in ((left, width), (top, height))
        )
        self.limits = x, y

    def warp(self, warp: Warp) -> None:
        """Begin anew behind the matrices; boxes of pictures that stay as they are are not clipped."""
        self.stages.append(Stage(self.x, self.y, warp.forward(self.height, self.width)))
        self.x, self.y = Axis.unmoved(), Axis.unmoved()
        stays = warp.kinds == Step.NONE
        for axis, size in ((self.x, self.width), (self.y, self.height)):
            axis.low, axis.high = np.where(stays, -np.inf, 0), np.where(stays, np.inf, size)
        if warp.bends:
            self.bender = self.doing
        self.is_moved = True

    def grey(self, channels: int) -> None:
        """Do nothing: colours have no place."""

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Do nothing: a function changes pixels, not their places."""

    def keep(self, rule: Rule) -> None:
        """Follow this rule instead of the default, or of an earlier one of its kind."""
        if isinstance(rule, (GeometryRule, CropRule)):
            self.adds = tuple(dict.fromkeys((*self.adds, *rule.adds)))
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
        for side in ("height", "width", "stored_height", "stored_width"):
            setattr(self, side, np.where(mask, 0, getattr(self, side)))
        self.x.blank(mask)
        self.y.blank(mask)

    def part(self, part: slice | NDArray[np.int64]) -> Frames:
        """Return the frames of some of the pictures, by position."""
        some = copy(self)
        for name in ("height", "width", "stored_height", "stored_width"):
            side = getattr(self, name)
            setattr(some, name, side[part] if len(side) > 1 else side)
        some.x, some.y = self.x.part(part), self.y.part(part)
        some.stages = [stage.part(part) for stage in self.stages]
        if self.limits is not None:
            some.limits = self.limits[0].part(part), self.limits[1].part(part)
        return some

    def added(self, count: int) -> dict[str, NDArray[np.generic]]:
        """Return the fields that samples get, of ``count`` pictures, by name."""
        values: dict[str, NDArray[np.generic]] = {}
        if GeometryRule.adds[0] in self.adds:
            values[GeometryRule.adds[0]] = self.affine(count)
        if CropRule.adds[0] in self.adds:
            sizes, crops = np.empty((count, 2), np.int64), np.empty((count, 2), np.int64)
            for column, (name, side) in enumerate((("y", self.stored_height), ("x", self.stored_width))):
                low, high = np.zeros(1), side.astype(np.float64)
                for axis in (getattr(part, name) for part in (*self.stages, self)):  # warps themselves crop nothing
                    low, high = axis.scale * low + axis.offset, axis.scale * high + axis.offset
                sizes[:, column] = side
                crops[:, column] = np.rint(-np.minimum(low, high))  # a mirrored picture begins with its other end
            values |= zip(CropRule.adds, (sizes, crops), strict=True)
        return values

    def affine(self, count: int) -> NDArray[np.float32]:
        """
        Return ``(count, 2, 3)`` float32: for each picture the matrix that takes positions ``(x, y, 1)`` of boxes in
        the stored picture to positions in the transformed one. Raises SchemaError for a perspective.
        """
        if self.bender is not None:
            raise SchemaError(f"{self.bender} and KeepGeometry: no matrix (2, 3) says what it does: drop one")
        matrices = _axes(self.x, self.y, count)
        for stage in reversed(self.stages):
            warped = stage.matrices / stage.matrices[:, 2:, 2:]
            matrices = matrices @ warped @ _axes(stage.x, stage.y, count)
        return matrices[:, :2].astype(np.float32)

    def _resized(self, height: Ints, width: Ints) -> None:
        self.height, self.width = height, width
        self.is_moved = True


@dataclass(frozen=True, slots=True)
class FramesByMember:
    """
    Frames of pictures of which each member of a mixture is moved by transforms of its own, with its own rules.

    ``parts`` are the frames of each member's pictures, with the positions of these among all, int64 ``(n,)``.
    """

    parts: tuple[tuple[Frames, NDArray[np.int64]], ...]

    def part(self, part: NDArray[np.int64]) -> FramesByMember:
        """Return the frames of some of the pictures, by position."""
        parts = []
        for frames, positions in self.parts:
            within = np.full(max(int(positions.max(initial=-1)), int(part.max(initial=-1))) + 1, -1)
            within[positions] = np.arange(len(positions))
            own = within[part]
            parts.append((frames.part(own[own >= 0]), np.flatnonzero(own >= 0)))
        return FramesByMember(tuple(parts))

    @property
    def adds(self) -> tuple[str, ...]:
        """The fields that samples get, which are those of each member."""
        return self.parts[0][0].adds if self.parts else ()

    def added(self, count: int) -> dict[str, NDArray[np.generic]]:
        """As Frames.added."""
        values: dict[str, NDArray[np.generic]] = {}
        for frames, positions in self.parts:
            for name, own in frames.added(len(positions)).items():
                values.setdefault(name, np.zeros((count, *own.shape[1:]), own.dtype))[positions] = own
        return values


def _axes(x: Axis, y: Axis, count: int) -> Floats:
    """Return ``(count, 3, 3)``: what the axes do, as matrices."""
    matrices = np.zeros((count, 3, 3))
    for row, axis in enumerate((x, y)):
        matrices[:, row, row], matrices[:, row, 2] = axis.scale, axis.offset
    matrices[:, 2, 2] = 1
    return matrices


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

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows of the samples at these positions, in this order; a position may come several times."""
        rows, counts = elements_of(firsts_of(self.counts), positions)
        return Rows(self.values[rows], counts)

    @property
    def samples(self) -> NDArray[np.int64]:
        """The position of the sample that each row belongs to, ``(N,)``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def move_targets(fields: Iterable[Field], rows: Mapping[str, Rows], frames: Frames | FramesByMember) -> dict[str, Rows]:
    """
    Return the rows of each field after the transforms that ``frames`` followed, for the same ``n`` samples.

    Boxes and points are moved, then clipped and dropped by the frames' rules (``KeepBoxes``, ``KeepPoints``); with a
    dropped row go the rows "per" it. Other fields stay as they are. Boxes keep their format (two corners, corner and
    size, or centre and size), and all values their dtype: whole numbers are rounded to the nearest.

    ``rows`` must have the owner of each field in it, with equal counts (see ``find_mismatches``): SchemaError if not.
    """
    known = {field.name: field for field in fields if field.name in rows}
    if isinstance(frames, FramesByMember):
        return _moved_by_member(known, rows, frames)
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


def _moved_by_member(known: Mapping[str, Field], rows: Mapping[str, Rows], frames: FramesByMember) -> dict[str, Rows]:
    """Return the rows of each member's samples as its frames move them, in the order of all samples."""
    parts = [
        move_targets(known.values(), {name: each.at(positions) for name, each in rows.items()}, own)
        for own, positions in frames.parts
    ]
    if not parts:
        return dict(rows)
    back = np.argsort(np.concatenate([positions for _, positions in frames.parts]), kind="stable")
    joined = {
        name: Rows(
            np.concatenate([part[name].values for part in parts]), np.concatenate([p[name].counts for p in parts])
        )
        for name in rows
    }
    return {name: each.at(back) for name, each in joined.items()}


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
    boxes = rows.values.astype(np.float64)
    whole, shown = _followed(_Box.of(boxes, field), frames.part(rows.samples))
    keep = _large_enough((shown.right - shown.left, shown.bottom - shown.top), whole.area, rule)
    done = shown if rule.clip else whole
    boxes[:, 0], boxes[:, 2] = _from_sides(done.left, done.right, field.geometry)
    boxes[:, 1], boxes[:, 3] = _from_sides(done.top, done.bottom, field.geometry)
    return Rows(_as_stored(boxes, rows.values.dtype), rows.counts), keep


def _followed(whole: _Box, own: Frames) -> tuple[_Box, _Box]:
    """Return where the frames of each box take it, and what is seen of it: nothing of one that was dropped."""
    shown, is_gone = whole, np.zeros(len(whole.left), np.bool_)
    for stage in own.stages:
        whole, shown = whole.along(stage.x, stage.y), shown.along(stage.x, stage.y).clipped(stage.x, stage.y)
        is_gone |= shown.is_empty  # a line is turned into a box
        if stage.inside is not None:
            x, y = (shown.left + shown.right) / 2, (shown.top + shown.bottom) / 2
            left, top, right, bottom = stage.inside.T
            is_gone |= ~((left < x) & (x < right) & (top < y) & (y < bottom))
        whole, shown = whole.around(stage.matrices), shown.around(stage.matrices)
    whole, shown = whole.along(own.x, own.y), shown.along(own.x, own.y).clipped(own.x, own.y)
    return whole, shown.without(is_gone)


def _moved_points(rows: Rows, frames: Frames) -> tuple[Rows, Keep]:
    """Return all points where the frames take them, and which rows of them to keep."""
    points = rows.values.astype(np.float64)
    inside, own = np.ones(len(points), np.bool_), frames.part(rows.samples)
    per_row = (-1, *[1] * (points.ndim - 2))  # a number of each row, for all points in it
    for stage in own.stages:
        x, y = (_along(points[..., column], axis, per_row) for column, axis in enumerate((stage.x, stage.y)))
        points[..., 0], points[..., 1] = _projected(x, y, stage.matrices, per_row)
    for column, (axis, size) in enumerate(((own.x, own.width), (own.y, own.height))):
        moved = _along(points[..., column], axis, per_row)
        low, high = (np.zeros(1), size) if own.limits is None else (own.limits[column].low, own.limits[column].high)
        low, high = low.reshape(per_row), high.reshape(per_row)
        if frames.points.outside == "clip":
            moved = np.clip(moved, low, high - 1)
        elif frames.points.outside == "drop":
            is_inside = (moved >= low) & (moved < high)
            inside &= is_inside.all(axis=tuple(range(1, is_inside.ndim)))
        points[..., column] = moved
    return Rows(_as_stored(points, rows.values.dtype), rows.counts), inside


def _along(positions: Floats, axis: Axis, per_row: tuple[int, ...]) -> Floats:
    """Return where an axis takes positions of points; ``per_row`` is the shape of a number of each row."""
    moved: Floats = axis.scale.reshape(per_row) * positions + axis.point_offset.reshape(per_row)
    return moved


def _projected(x: Floats, y: Floats, matrices: Floats, per_row: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return where matrices ``(rows, 3, 3)`` take positions."""
    (a, b, c), (d, e, f), (g, h, i) = (
        tuple(matrices[:, row, column].reshape(per_row) for column in range(3)) for row in range(3)
    )
    divisor = g * x + h * y + i
    divisor = np.where(divisor == 0, np.finfo(np.float64).eps, divisor)  # far away
    return tuple(np.clip(up / divisor, -_FAR, _FAR) for up in (a * x + b * y + c, d * x + e * y + f))  # type: ignore[return-value] # two


@dataclass(frozen=True, slots=True)
class _Box:
    """The sides of boxes, (N,) each."""

    left: Floats
    right: Floats
    top: Floats
    bottom: Floats

    @classmethod
    def of(cls, boxes: Floats, field: Field) -> _Box:
        """Return boxes (N, 4) in the format of their field."""
        across, down = (_sides(boxes[:, axis], boxes[:, axis + 2], field.geometry) for axis in range(2))
        return cls(*across, *down)

    @property
    def area(self) -> Floats:
        return (self.right - self.left) * (self.bottom - self.top)

    @property
    def is_empty(self) -> Keep:
        return (self.right <= self.left) | (self.bottom <= self.top)

    def along(self, x: Axis, y: Axis) -> _Box:
        """Return where axes take the boxes."""
        return _Box(*_moved_sides(self.left, self.right, x), *_moved_sides(self.top, self.bottom, y))

    def clipped(self, x: Axis, y: Axis) -> _Box:
        """Return the boxes within the limits of axes."""
        across = (np.clip(side, x.low, x.high) for side in (self.left, self.right))
        down = (np.clip(side, y.low, y.high) for side in (self.top, self.bottom))
        return _Box(*across, *down)

    def around(self, matrices: Floats) -> _Box:
        """Return the boxes around the corners where matrices take these."""
        corners_x = np.stack((self.left, self.right, self.right, self.left), axis=1)
        corners_y = np.stack((self.top, self.top, self.bottom, self.bottom), axis=1)
        x, y = _projected(corners_x, corners_y, matrices, (-1, 1))
        return _Box(x.min(axis=1), x.max(axis=1), y.min(axis=1), y.max(axis=1))

    def without(self, gone: Keep) -> _Box:
        """Return the boxes, without size where ``gone`` is set."""
        right, bottom = np.where(gone, self.left, self.right), np.where(gone, self.top, self.bottom)
        return _Box(self.left, right, self.top, bottom)


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
