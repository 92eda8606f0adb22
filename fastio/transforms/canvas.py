"""What transforms act on: pictures of known sizes, as a batch's plan or as the pixels of one picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.arguments import Fill
from fastio.transforms.matrices import Warp

__all__ = [
    "AxisName",
    "BoxRule",
    "Boxes",
    "Canvas",
    "CropRule",
    "GeometryRule",
    "Ints",
    "PixelFunction",
    "PointRule",
    "RefusedPicturesError",
    "Rule",
    "Steps",
]


Ints = NDArray[np.int64]
AxisName = Literal["x", "y"]
Boxes = tuple[NDArray[np.float64], Ints]  # two corners of each, (N, 4), and the position of its picture, (N,)
PixelFunction = Callable[[NDArray[np.uint8], NDArray[np.float64]], None]  # changes pixels (H, W, C), given numbers (k,)


class Canvas(Protocol):
    """
    What transforms act on: pictures of known sizes. The steps are the same for a plan and for pixels.

    All sizes and positions are int64 arrays, ``(n,)``, or ``(1,)`` if they are the same for all pictures. Positions
    refer to the picture as earlier steps left it.
    """

    doing: object  # the transform whose steps these are, for messages

    @property
    def height(self) -> Ints: ...

    @property
    def width(self) -> Ints: ...

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        """Keep a part, which must lie inside the picture."""
        ...

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        """Resample, antialiased, with one of ``arguments.KERNELS``."""
        ...

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        """Add edges of one colour, those of masks of one number; sizes of 0 add none."""
        ...

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        """Exchange left and right where ``mask`` is set, or top and bottom for the axis "y"."""
        ...

    def warp(self, warp: Warp) -> None:
        """Read each pixel from elsewhere in the picture, which keeps its size."""
        ...

    def grey(self, channels: int) -> None:
        """Convert to luma as in Pillow's "L", in 1 channel or in 3 equal ones."""
        ...

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Let a function compiled by numba change the pixels; ``numbers`` are ``(n, k)``."""
        ...

    def keep(self, rule: Rule) -> None:
        """Treat boxes or points by this rule; pixels do not change."""
        ...

    def boxes_now(self) -> Boxes | None:
        """Return the boxes in pixels of the canvas, clipped as it is; None for a canvas that does not know them."""
        ...

    def drop_outside(self, left: Ints, top: Ints, *, width: Ints, height: Ints, mask: NDArray[np.bool_]) -> None:
        """Drop boxes whose centre is not within this part, where ``mask`` is set."""
        ...


class RefusedPicturesError(SchemaError):
    """
    A transform cannot take some pictures of a canvas for their size.

    ``refused`` says which, bool ``(n,)``, and ``reason`` why, without the size of one.
    """

    def __init__(self, message: str, *, reason: str, refused: NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.reason = reason
        self.refused = refused

    def spread(self, places: NDArray[np.bool_] | NDArray[np.int64], count: int) -> RefusedPicturesError:
        """Return the same for ``count`` pictures, those at ``places`` being what was on the canvas."""
        refused = np.zeros(count, np.bool_)
        refused[places] = self.refused
        return RefusedPicturesError(str(self), reason=self.reason, refused=refused)


class Steps(Protocol):
    """What can run on a canvas: a transform."""

    @property
    def draws(self) -> int:
        """How many random numbers one picture takes."""
        ...

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Perform the steps on the canvas; ``numbers`` are ``(n, draws)``."""
        ...


# BoxRule, PointRule: what becomes of boxes and points. GeometryRule, CropRule: fields that samples get.

Outside = Literal["keep", "clip", "drop"]


@dataclass(frozen=True)
class BoxRule:
    """What is clipped and dropped of boxes: see KeepBoxes."""

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


@dataclass(frozen=True)
class PointRule:
    """What happens to points outside the picture: see KeepPoints."""

    outside: Outside = "keep"

    def __post_init__(self) -> None:
        if self.outside not in get_args(Outside):
            raise ValueError(f"outside={self.outside!r}: expected one of {', '.join(get_args(Outside))}")


@dataclass(frozen=True)
class GeometryRule:
    """Samples get the matrix that moved them: see KeepGeometry."""

    adds: ClassVar[tuple[str, ...]] = ("geometry",)


@dataclass(frozen=True)
class CropRule:
    """Samples get their size, and where they were cropped: see KeepCrop."""

    adds: ClassVar[tuple[str, ...]] = ("original_size", "crop")


Rule = BoxRule | PointRule | GeometryRule | CropRule
