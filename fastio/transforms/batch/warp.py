"""
Rotations, shears, shifts and perspectives, by which each pixel is read from elsewhere in its picture; vertical flips.

Pictures keep their size. Masks, boxes and points do not follow: loaders refuse these transforms beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio.transforms.arguments import Fill, Interpolation, as_fill, as_kernel
from fastio.transforms.batch.program import PixelTransform, Program, Step, check_probability, program_of
from fastio.types.options import explains_fields

__all__ = [
    "Look",
    "RandomAffine",
    "RandomPerspective",
    "RandomRotation",
    "RandomVerticalFlip",
    "affine_matrices",
    "warp_program",
]


@dataclass(frozen=True)
class Look:
    """
    How pixels are read: bilinear, or the nearest one; and the colour outside the picture.

    Without ``fill`` it is black, and bilinear edges fade into it; with one they fade twice, as torchvision's do.
    """

    is_bilinear: bool
    fill: Fill | None

    @classmethod
    def of(cls, interpolation: Interpolation, fill: float | Sequence[float] | None) -> Look:
        """Read the arguments of a transform. Raises ValueError for another interpolation, or an impossible colour."""
        kernel = as_kernel(interpolation)
        if kernel not in ("nearest", "bilinear"):
            raise ValueError(f"interpolation={interpolation!r}: expected 'nearest' or 'bilinear'")
        return cls(kernel == "bilinear", None if fill is None else as_fill(fill))


def affine_matrices(
    *,
    angle: ArrayLike = 0.0,
    translate: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
    scale: ArrayLike = 1.0,
    shear: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
    center: tuple[float, float] = (0.0, 0.0),
) -> NDArray[np.float64]:
    """
    Return matrices (n, 6) that map (x, y, 1) of the result to where it is read, both from the picture's middle.

    The picture is sheared by ``shear`` (x and y), scaled, rotated clockwise by ``angle`` about ``center`` (from the
    middle, in pixels), then shifted by ``translate`` pixels; angles are in degrees. What torchvision's ``affine``
    does, whose matrix is the inverse of this one's.
    """
    turn, shear_x, shear_y = (np.radians(np.asarray(value, np.float64)) for value in (angle, *shear))
    shift_x, shift_y, size = (np.asarray(value, np.float64) for value in (*translate, scale))
    # Forwards: a point goes to ((a, b), (c, d)) * scale; the determinant of these four is 1.
    a = np.cos(turn - shear_y) / np.cos(shear_y)
    b = -(a * np.tan(shear_x) + np.sin(turn))
    c = np.sin(turn - shear_y) / np.cos(shear_y)
    d = np.cos(turn) - c * np.tan(shear_x)
    x, y = center
    back = (d / size, -b / size, -c / size, a / size)
    first = x - back[0] * (x + shift_x) - back[1] * (y + shift_y)
    second = y - back[2] * (x + shift_x) - back[3] * (y + shift_y)
    columns = np.broadcast_arrays(back[0], back[1], first, back[2], back[3], second)
    return np.stack([np.atleast_1d(column) for column in columns], axis=1)


def warp_program(matrices: NDArray[np.float64], look: Look) -> Program:
    """Return a program of one step for matrices (n, 6), or (n, 8) with a divisor, as ``Step.PERSPECTIVE``."""
    count, columns = matrices.shape
    fill = (0,) if look.fill is None else look.fill
    colour = np.resize(np.array(fill[:3], np.float64), 3)
    amounts = np.zeros((count, 13))
    amounts[:, :columns] = matrices
    amounts[:, 8:] = [look.is_bilinear, look.fill is not None, *colour]
    return program_of(count, (Step.AFFINE if columns == 6 else Step.PERSPECTIVE, amounts))


@explains_fields
@dataclass(frozen=True)
class RandomVerticalFlip(PixelTransform):
    """Flip top and bottom with probability ``p``. Draws one number: whether to flip."""

    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)

    @property
    def takes_alpha(self) -> bool:
        """Whether pictures may have four channels."""
        return True

    @property
    def moves(self) -> bool:
        """Always."""
        return True

    @property
    def draws(self) -> int:
        """One number: whether to flip."""
        return 1

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        program = program_of(len(numbers), (Step.FLIP_Y, 0))
        program[numbers[:, 0] >= self.p] = 0
        return program


@explains_fields
@dataclass(frozen=True)
class RandomRotation(PixelTransform):
    """
    Rotate by an angle between ``-degrees`` and ``degrees``, or of the range ``degrees``, counter-clockwise.

    The picture keeps its size; it turns about ``center`` (x, y, in pixels from the top left corner), or its middle.
    Pixels are read by ``interpolation``, "nearest" or "bilinear"; ``fill`` is the colour outside the picture. Draws
    one number: the angle.
    """

    degrees: float | Sequence[float]
    interpolation: Interpolation = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: float | Sequence[float] | None = 0

    def __post_init__(self) -> None:
        if self.expand:
            raise ValueError("expand=True: expected False: pictures of a batch keep their size")
        object.__setattr__(self, "degrees", _range("degrees", self.degrees))
        object.__setattr__(self, "center", _pair("center", self.center))
        Look.of(self.interpolation, self.fill)

    @property
    def moves(self) -> bool:
        """Always."""
        return True

    @property
    def draws(self) -> int:
        """One number: the angle."""
        return 1

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        angle = _within(self.degrees, numbers[:, 0])
        matrices = affine_matrices(angle=-(angle % 360), center=_from_middle(self.center, size))
        return warp_program(matrices, Look.of(self.interpolation, self.fill))


@explains_fields
@dataclass(frozen=True)
class RandomAffine(PixelTransform):
    """
    Rotate, shift, scale and shear by random amounts; the picture keeps its size.

    ``degrees`` and ``shear`` are ranges of angles, ``(-v, v)`` for a number v; four numbers of ``shear`` are ranges for
    x and y. ``translate`` is the largest shift as a share of width and height, ``scale`` the range of the factor.
    ``interpolation``, ``fill`` and ``center`` as in RandomRotation; angles are clockwise, as in torchvision. Draws six
    numbers: the angle, the shift along x and y, the scale, the shear along x and y.
    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: Interpolation = "nearest"
    fill: float | Sequence[float] | None = 0
    center: Sequence[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", _range("degrees", self.degrees))
        for name in ("translate", "scale", "center"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        if self.translate is not None and not all(0 <= share <= 1 for share in self.translate):
            raise ValueError(f"translate={self.translate!r}: expected two shares from 0 to 1")
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"scale={self.scale!r}: expected two numbers above 0, the smaller one first")
        if self.shear is not None:
            ranges = tuple(self.shear) if isinstance(self.shear, Sequence) else _range("shear", self.shear)
            if len(ranges) not in (2, 4):
                raise ValueError(f"shear={self.shear!r}: expected a number, two or four")
            object.__setattr__(self, "shear", tuple(float(angle) for angle in ranges))
        Look.of(self.interpolation, self.fill)

    @property
    def moves(self) -> bool:
        """Always."""
        return True

    @property
    def draws(self) -> int:
        """Six numbers: the angle, two for the shift, the scale, two for the shear."""
        return 6

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        height, width = size
        across, down = (0.0, 0.0) if self.translate is None else self.translate
        shift = [
            np.rint(_within((-share * side, share * side), numbers[:, 1 + place]))
            for place, (share, side) in enumerate(((across, width), (down, height)))
        ]
        shear = (0.0, 0.0, 0.0, 0.0)
        if isinstance(self.shear, tuple):
            shear = (*self.shear, 0.0, 0.0)[:4]
        matrices = affine_matrices(
            angle=_within(self.degrees, numbers[:, 0]),
            translate=(shift[0], shift[1]),
            scale=1.0 if self.scale is None else _within(self.scale, numbers[:, 3]),
            shear=(_within(shear[:2], numbers[:, 4]), _within(shear[2:], numbers[:, 5])),
            center=_from_middle(self.center, size),
        )
        return warp_program(matrices, Look.of(self.interpolation, self.fill))


@explains_fields
@dataclass(frozen=True)
class RandomPerspective(PixelTransform):
    """
    Move the four corners inwards by random amounts with probability ``p``; the picture keeps its size.

    A corner moves by less than ``distortion_scale`` of half the side. ``interpolation`` and ``fill`` as in
    RandomRotation. Draws nine numbers: whether, then x and y of the corners, clockwise from the top left one.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Interpolation = "bilinear"
    fill: float | Sequence[float] | None = 0

    def __post_init__(self) -> None:
        check_probability(self.p)
        if not 0 <= self.distortion_scale <= 1:
            raise ValueError(f"distortion_scale={self.distortion_scale!r}: expected a number from 0 to 1")
        Look.of(self.interpolation, self.fill)

    @property
    def moves(self) -> bool:
        """Always."""
        return True

    @property
    def draws(self) -> int:
        """Nine numbers: whether, and two for each corner."""
        return 9

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        height, width = size
        corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
        bounds = np.array([int(self.distortion_scale * (side // 2)) + 1 for side in (width, height)])
        inwards = np.floor(numbers[:, 1:].reshape(-1, 4, 2) * bounds)
        # From the left and top a corner moves by 0 to bound - 1, from the right and bottom likewise.
        ends = np.where(corners > 0, corners - (bounds - 1 - inwards), inwards)
        program = warp_program(perspective_matrices(corners, ends), Look.of(self.interpolation, self.fill))
        program[numbers[:, 0] >= self.p] = 0
        return program


def perspective_matrices(starts: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    Return matrices (n, 8) that map (x, y, 1) of the result to where it is read, in pixels, divided by a third row.

    ``starts`` (4, 2) are corners of the picture, ``ends`` (n, 4, 2) their places in the result.
    """
    x, y = ends[..., 0], ends[..., 1]
    one, zero = np.ones_like(x), np.zeros_like(x)
    first = np.stack([x, y, one, zero, zero, zero, -starts[:, 0] * x, -starts[:, 0] * y], axis=-1)
    second = np.stack([zero, zero, zero, x, y, one, -starts[:, 1] * x, -starts[:, 1] * y], axis=-1)
    equations = np.stack([first, second], axis=2).reshape(-1, 8, 8)
    # Corners of a picture of a single row or column coincide: no solve().
    solved = np.linalg.pinv(equations) @ starts.reshape(8, 1)
    matrices: NDArray[np.float64] = solved[..., 0]
    return matrices


def _within(limits: object, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = np.asarray(limits, np.float64)
    amounts: NDArray[np.float64] = low + (high - low) * numbers
    return amounts


def _range(name: str, value: object) -> tuple[float, float]:
    """Return the range that a number v, (-v, v), or a pair stands for."""
    pair = (-value, value) if isinstance(value, (int, float)) and value >= 0 else value
    if not isinstance(pair, Sequence) or len(pair) != 2 or not pair[0] <= pair[1]:
        raise ValueError(f"{name}={value!r}: expected a number of at least 0, or two, the smaller one first")
    return float(pair[0]), float(pair[1])


def _pair(name: str, value: Sequence[float] | None) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name}={value!r}: expected two numbers")
    return float(value[0]), float(value[1])


def _from_middle(center: Sequence[float] | None, size: tuple[int, int]) -> tuple[float, float]:
    height, width = size
    return (0.0, 0.0) if center is None else (center[0] - width / 2, center[1] - height / 2)
