"""The plan of a batch: numbers from which the native core makes each row in one pass, and how they compose.

A row of the plan says: crop the decoded picture to the *box*; resample that to the *virtual* size, with taps clamped
to the box; take the *window* of it; *place* it in the output row and fill the rest; flip the row. Every chain of
crops, edges and flips around one resampling has this form:

* a crop before the resampling moves box and window, one after it only the window; it may cut off edges
* edges move the place; a crop of a flipped picture is the mirrored crop of the unflipped one
* a second resampling does not have this form: SchemaError names the two transforms that conflict
* a warp is done to the finished row, as a step of a program, and so are the flips behind it
* a crop, resampling or edges behind a warp begin another plan, of the warped picture, and so does a resampling of
  edges: a plan of several ``stages``; what does not have this form there begins one more
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.arguments import KERNELS, Fill
from fastio.transforms.canvas import AxisName, Boxes, Ints, PixelFunction, Rule
from fastio.transforms.matrices import Warp
from fastio.transforms.program import COLUMNS as COLUMNS_OF_STEP
from fastio.transforms.program import Program, Step, joined, program_of

__all__ = ["BLANK", "COLUMNS", "FLIPS", "Plan", "PlanStage", "canvas_step"]

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

_FILTERS = {name: number for number, name in enumerate(KERNELS)}


@dataclass(frozen=True, slots=True)
class PlanStage:
    """
    One plan of ``n`` pictures, and what is done to what it makes: ``rows`` ``(n, 13)`` int32, and a program for
    pictures and one for masks, ``(n, steps, 14)`` (None: no steps). ``height`` and ``width``, ``(n,)`` or ``(1,)``, are
    sizes after the plan.
    """

    rows: NDArray[np.int32]
    height: Ints
    width: Ints
    kernel: str | None
    fill: Fill
    mask_fill: int
    program: Program | None
    mask_program: Program | None


class Plan:
    """
    A canvas without pixels: it records what to do with pictures of these sizes.

    ``kernel`` is the filter of the resampling (None: none); ``fill`` the colour of edges, and ``mask_fill`` the number
    of those of masks; ``channels`` what a Grayscale leaves (None: no Grayscale); ``is_grey_first`` whether it comes
    before the resampling. ``has_masks``: the plan is for masks, too, whose pixels are not interpolated.
    """

    def __init__(self, height: Ints, width: Ints, *, has_masks: bool = False) -> None:
        self.height, self.width = height, width
        self.doing: object = None
        self.channels: int | None = None
        self.is_grey_first = False
        self._warper: object = None
        self._has_masks = has_masks
        self._earlier: list[Plan] = []  # whose finished rows are the pictures of this one
        self._clear()

    def _clear(self) -> None:
        """Begin with pictures as they are."""
        zero, height, width = np.zeros(1, np.int64), self.height, self.width
        self.kernel: str | None = None
        self.fill: Fill | None = None
        self.mask_fill = 0
        self._box = (zero, zero, width, height)
        self._virtual = (width, height)
        self._window = (zero, zero, width, height)
        self._place = (zero, zero)
        self._flips: dict[AxisName, NDArray[np.bool_]] = {"x": np.zeros(1, np.bool_), "y": np.zeros(1, np.bool_)}
        self._steps: list[tuple[Program, Program]] = []  # of finished rows: of pictures, of masks
        self._resizer: object = None
        self._padder: object = None
        self._flipper: object = None

    @property
    def first(self) -> Plan:
        """The first of its stages as a plan: what is done to pictures while they are decoded."""
        return self._earlier[0] if self._earlier else self

    def stages(self, count: int) -> list[PlanStage]:
        """Return the plans for ``count`` pictures, each of what the one before has made; mostly there is one."""
        return [
            PlanStage(
                plan._rows(count),
                plan.height,
                plan.width,
                plan.kernel,
                plan.fill or (0,),
                plan.mask_fill,
                plan._program(count),
                plan._program(count, of_masks=True),
            )
            for plan in (*self._earlier, self)
        ]

    def rows(self, count: int) -> NDArray[np.int32]:
        """Return the (first) plan as the native core reads it: ``(count, 13)`` int32, one COLUMN each."""
        return self.first._rows(count)

    def program(self, count: int, *, of_masks: bool = False) -> Program | None:
        """
        Return what follows the first plan, ``(count, steps, 14)``; None if nothing does. Further plans are steps with a
        canvas.
        """
        if not self._earlier:
            return self._program(count, of_masks=of_masks)
        parts: list[Program] = []
        for number, stage in enumerate(self.stages(count)):
            if number > 0:
                parts.append(program_of(count, (Step.PLAN, stage.rows)))
            own = stage.mask_program if of_masks else stage.program
            fill = (stage.mask_fill,) if of_masks else stage.fill
            parts.append(canvas_step(count, stage.height, stage.width, stage.kernel, fill))
            parts += [] if own is None else [own]
        return joined(parts, count)

    def _rows(self, count: int) -> NDArray[np.int32]:
        out = np.empty((count, len(COLUMNS)), np.int32)
        flip = FLIPS["x"] * self._flips["x"] + FLIPS["y"] * self._flips["y"]
        parts = (*self._box, *self._virtual, *self._window, *self._place, flip)
        if all(len(values) == 1 for values in parts):  # the same for all samples
            out[:] = np.concatenate(parts)
            return out
        for column, values in enumerate(parts):
            out[:, column] = values
        return out

    def _program(self, count: int, *, of_masks: bool = False) -> Program | None:
        if not self._steps:
            return None
        steps = [step[of_masks] for step in self._steps]
        return joined([np.broadcast_to(step, (count, *step.shape[1:])) for step in steps], count)

    @property
    def warper(self) -> object:
        """The transform that warps finished rows, None if none does."""
        return self._warper

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        self._begin_behind_warps()
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
        self._begin_behind_warps()
        if self._resizer is not None:
            self._begin_behind_stages(self._resizer, "the picture would be resampled twice")
        if self._padder is not None:  # edges are resampled, too
            self._begin_anew()
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
        if not self._earlier:  # of later ones, pictures are grey already
            self.is_grey_first = self.channels is not None

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        """Add edges. Raises SchemaError if there already are edges of another colour."""
        if not any(side.any() for side in (left, top, right, bottom)):
            return
        self._begin_behind_warps()
        if self.channels is not None and len(fill) > 1:
            raise SchemaError(f"{self.doing}: fill={fill} after Grayscale; one number is a shade of grey")
        if self._padder is not None and fill != self.fill:
            self._begin_behind_stages(self._padder, "edges would have two colours")
        if self._padder is not None and mask_fill != self.mask_fill:
            self._begin_behind_stages(self._padder, "edges of masks would have two numbers")
        self.fill, self.mask_fill, self._padder = fill, mask_fill, self.doing
        self.width, self.height = self.width + left + right, self.height + top + bottom
        if self._flipper is not None:  # in the unflipped picture, the left edge of the flipped one is on the right
            left = np.where(self._flips["x"], right, left)
            top = np.where(self._flips["y"], bottom, top)
        self._place = (self._place[0] + left, self._place[1] + top)

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        """Mirror the row; behind a warp, as a step of its own."""
        if self._steps or self._earlier:
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
        """Convert to luma; existing edges lose their colour too. Raises SchemaError behind a warp."""
        if self._warper is not None:
            raise self._unfit(self._warper, "a warp is done to pictures that are grey already: put Grayscale before it")
        self.channels = channels
        if self.fill is not None and len(self.fill) > 1:
            red, green, blue = self.fill[:3]
            self.fill = ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16,)

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Raise SchemaError: functions are steps of programs, behind the plan."""
        raise SchemaError(f"{self.doing} changes pixels, which a plan does not have: pass its list, transforms=[...]")

    def keep(self, rule: Rule) -> None:
        """Do nothing: Frames follow the rule."""

    def boxes_now(self) -> Boxes | None:
        """Return None: it has no boxes."""
        return None

    def drop_outside(self, left: Ints, top: Ints, *, width: Ints, height: Ints, mask: NDArray[np.bool_]) -> None:
        """Do nothing: it has no boxes."""

    def _begin_behind_warps(self) -> None:
        """Begin another plan, of the finished rows, if these were warped."""
        if self._steps:
            self._begin_anew()

    def _begin_behind_stages(self, other: object, why: str) -> None:
        """
        Begin another plan because this one has no room for what comes next. Raises SchemaError if it is the first,
        which is done while pictures are decoded.
        """
        if not self._earlier:
            raise self._unfit(other, why)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._earlier = [*self._earlier, copy(self)]
        self._clear()

    def _unfit(self, other: object, why: str) -> SchemaError:
        return SchemaError(
            f"{other} and then {self.doing} cannot be done in one pass: {why}; drop one, or pass them to "
            "FastDataset(transform=Compose([...])), which runs one after the other"
        )


def canvas_step(count: int, height: Ints, width: Ints, kernel: str | None, fill: Fill) -> Program:
    """
    Return the step of a program, for ``count`` samples, that says what their plan fills: pictures of these sizes, with
    this filter, and a fill of a number for all channels or one for each.
    """
    amounts = np.zeros((count, COLUMNS_OF_STEP - 1))
    amounts[:, 0], amounts[:, 1], amounts[:, 2] = height, width, _FILTERS[kernel or "bilinear"]
    amounts[:, 3:7] = fill if len(fill) == 1 else (*fill, 0)[:4]
    return program_of(count, (Step.CANVAS, amounts))


def _overlap(place: Ints, size: Ints, first: Ints, length: Ints) -> tuple[Ints, Ints, Ints]:
    """
    Intersect ``[place, place + size)`` with ``[first, first + length)``: returns the start within the first, the
    size, and the new place.
    """
    start, stop = np.maximum(place, first), np.minimum(place + size, first + length)
    return start - place, np.maximum(stop - start, 0), start - first
