"""The plan of a batch: numbers from which the native core makes each row in one pass, and how they compose.

A row of the plan says: crop the decoded picture to the *box*; resample that to the *virtual* size, with taps clamped
to the box; take the *window* of it; *place* it in the output row and fill the rest; flip the row. Every chain of
crops, edges and flips around one resampling has this form:

* a crop before the resampling moves box and window, one after it only the window; it may cut off edges
* edges move the place; a crop of a flipped picture is the mirrored crop of the unflipped one
* a second resampling, or one of edges, does not have this form: SchemaError names the two transforms that conflict
* a warp is done to the finished row: only flips and warps come after it, as steps of a program
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import AxisName, Ints, PixelFunction, Rule
from fastio.transforms.matrices import Warp
from fastio.transforms.program import Program, Step, joined, program_of

__all__ = ["BLANK", "COLUMNS", "FLIPS", "Plan"]

COLUMNS = (
    "box_x",
    "box_y",
    "box_w",
    "box_h",
    "virtual_w",
    "virtual_h",
    "window_x",
    "window_y",
    "window_w",
    "window_h",
    "place_x",
    "place_y",
    "flip",
)

# What the column "flip" adds up.
FLIPS: Final[dict[AxisName, int]] = {"x": 1, "y": 2}

# One pixel unchanged: a plan row that fits any picture and any batch.
BLANK = (0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0)

# Filters whose kernel is not symmetric when a tap lies exactly between two pixels.
_ONE_SIDED = ("nearest", "box")


class Plan:
    """
    A canvas without pixels: it records what to do with pictures of these sizes.

    ``kernel`` is the filter of the resampling (None: none); ``fill`` the colour of edges, and ``mask_fill`` the number
    of those of masks; ``channels`` what a Grayscale leaves (None: no Grayscale); ``is_grey_first`` whether it comes
    before the resampling. ``has_masks``: the plan is for masks, too, whose pixels are not interpolated.
    """

    def __init__(self, height: Ints, width: Ints, *, has_masks: bool = False) -> None:
        zero = np.zeros(1, np.int64)
        self.height, self.width = height, width
        self.doing: object = None
        self.kernel: str | None = None
        self.fill: Fill | None = None
        self.mask_fill = 0
        self.channels: int | None = None
        self.is_grey_first = False
        self._box = (zero, zero, width, height)
        self._virtual = (width, height)
        self._window = (zero, zero, width, height)
        self._place = (zero, zero)
        self._flips: dict[AxisName, NDArray[np.bool_]] = {"x": np.zeros(1, np.bool_), "y": np.zeros(1, np.bool_)}
        self._steps: list[tuple[Program, Program]] = []  # of finished rows: of pictures, of masks
        self._resizer: object = None
        self._padder: object = None
        self._flipper: object = None
        self._warper: object = None
        self._has_masks = has_masks

    def rows(self, count: int) -> NDArray[np.int32]:
        """Return the plan as the native core reads it: ``(count, 13)`` int32, one COLUMN each."""
        out = np.empty((count, len(COLUMNS)), np.int32)
        flip = FLIPS["x"] * self._flips["x"] + FLIPS["y"] * self._flips["y"]
        parts = (*self._box, *self._virtual, *self._window, *self._place, flip)
        if all(len(values) == 1 for values in parts):  # the same for all samples
            out[:] = np.concatenate(parts)
            return out
        for column, values in enumerate(parts):
            out[:, column] = values
        return out

    def program(self, count: int, *, of_masks: bool = False) -> Program | None:
        """Return the steps of finished rows, ``(count, steps, 14)``; None if there are none."""
        if not self._steps:
            return None
        steps = [step[of_masks] for step in self._steps]
        return joined([np.broadcast_to(step, (count, *step.shape[1:])) for step in steps], count)

    @property
    def warper(self) -> object:
        """The transform that warps finished rows, None if none does."""
        return self._warper

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        self._check_unfinished()
        if self._flipper is not None:
            left = np.where(self._flips["x"], self.width - left - width, left)
            top = np.where(self._flips["y"], self.height - top - height, top)
        window_x, window_y, window_w, window_h = self._window
        if self._padder is None:
            self._window = (window_x + left, window_y + top, width, height)
        else:
            x, w, place_x = _overlap(self._place[0], window_w, left, width)
            y, h, place_y = _overlap(self._place[1], window_h, top, height)
            # If only edges are left, the row is all fill; both sizes are then 0.
            is_empty = (w == 0) | (h == 0)
            w, h = np.where(is_empty, 0, w), np.where(is_empty, 0, h)
            self._window = (np.where(is_empty, 0, window_x + x), np.where(is_empty, 0, window_y + y), w, h)
            self._place = (np.where(is_empty, 0, place_x), np.where(is_empty, 0, place_y))
        self.width, self.height = width, height

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        """Resize. Raises SchemaError if the plan has no room for another resampling."""
        self._check_unfinished()
        if self._resizer is not None:
            raise self._unfit(self._resizer, "the picture would be resampled twice")
        if self._padder is not None:
            raise self._unfit(self._padder, "edges would be resampled")
        if self._flipper is not None and self._has_masks:
            raise self._unfit(self._flipper, "of a mask, the nearest pixels are others after a flip; put the flip last")
        if self._flipper is not None and kernel in _ONE_SIDED:
            raise self._unfit(self._flipper, f"{kernel!r} gives different pixels after a flip than before it")
        x, y, w, h = self._window
        self._box = (self._box[0] + x, self._box[1] + y, w, h)
        self._virtual = (width, height)
        self._window = (np.zeros(1, np.int64), np.zeros(1, np.int64), width, height)
        self.width, self.height = width, height
        self.kernel, self._resizer = kernel, self.doing
        self.is_grey_first = self.channels is not None

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        """Add edges. Raises SchemaError if there already are edges of another colour."""
        if not any(side.any() for side in (left, top, right, bottom)):
            return
        self._check_unfinished()
        if self.channels is not None and len(fill) > 1:
            raise SchemaError(f"{self.doing}: fill={fill} after Grayscale; one number is a shade of grey")
        if self._padder is not None and fill != self.fill:
            raise self._unfit(self._padder, "edges would have two colours")
        if self._padder is not None and mask_fill != self.mask_fill:
            raise self._unfit(self._padder, "edges of masks would have two numbers")
        self.fill, self.mask_fill, self._padder = fill, mask_fill, self.doing
        self.width, self.height = self.width + left + right, self.height + top + bottom
        if self._flipper is not None:  # in the unflipped picture, the left edge of the flipped one is on the right
            left = np.where(self._flips["x"], right, left)
            top = np.where(self._flips["y"], bottom, top)
        self._place = (self._place[0] + left, self._place[1] + top)

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        """Mirror the row, or after a warp what it has left."""
        if self._warper is not None:
            step = program_of(len(mask), (Step.FLIP_X if axis == "x" else Step.FLIP_Y, 0))
            step[~mask] = 0
            self._steps.append((step, step))
            return
        self._flips[axis], self._flipper = self._flips[axis] ^ mask, self.doing

    def warp(self, warp: Warp) -> None:
        """Read the pixels of the finished row elsewhere."""
        self._steps.append((warp.program, warp.mask_program))
        self._warper = self.doing

    def grey(self, channels: int) -> None:
        """Convert to luma; existing edges lose their colour too."""
        self._check_unfinished()
        self.channels = channels
        if self.fill is not None and len(self.fill) > 1:
            red, green, blue = self.fill[:3]
            self.fill = ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16,)

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Raise SchemaError: functions are steps of programs, behind the plan."""
        raise SchemaError(f"{self.doing} changes pixels, which a plan does not have: pass its list, transforms=[...]")

    def keep(self, rule: Rule) -> None:
        """Do nothing: Frames follow the rule."""

    def _check_unfinished(self) -> None:
        if self._warper is not None:
            raise self._unfit(
                self._warper,
                f"a warp is done to finished rows: put {type(self.doing).__name__} before it",
            )

    def _unfit(self, other: object, why: str) -> SchemaError:
        return SchemaError(
            f"{other} and then {self.doing} cannot be done in one pass: {why}; drop one, or pass them to "
            "FastDataset(transform=Compose([...])), which runs one after the other"
        )


def _overlap(place: Ints, size: Ints, first: Ints, length: Ints) -> tuple[Ints, Ints, Ints]:
    """
    Intersect ``[place, place + size)`` with ``[first, first + length)``: returns the start within the first, the
    size, and the new place.
    """
    start, stop = np.maximum(place, first), np.minimum(place + size, first + length)
    return start - place, np.maximum(stop - start, 0), start - first
