"""Targets: moves the boxes and points of many samples as their pictures were moved, and drops what is cropped away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.frames import Axis, Frames
from fastio.transforms.rules import BoxRule
from fastio.types.schema import Field

__all__ = ["Rows", "find_mismatches", "move_targets"]

Floats = NDArray[np.float64]
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
