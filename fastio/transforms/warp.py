"""Warps: RandomRotation, RandomAffine, RandomPerspective. The picture keeps its size; its pixels go elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import Interpolation, check_probability
from fastio.transforms.canvas import Canvas, Ints
from fastio.transforms.matrices import Look, Warp, affine_matrices, perspective_matrices
from fastio.transforms.transform import KeepsSize
from fastio.types.options import explains_fields

__all__ = [
    "RandomAffine",
    "RandomPerspective",
    "RandomRotation",
    "Warping",
]


class Warping(KeepsSize):
    """A transform that is one warp; Compose makes neighbours of the same look one."""

    @abstractmethod
    def warp(self, numbers: NDArray[np.float64], height: Ints, width: Ints) -> Warp:
        """Return the warp of pictures of these sizes; ``numbers`` are ``(n, draws)``."""
        ...

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Warp the pictures."""
        canvas.warp(self.warp(numbers, canvas.height, canvas.width))


@explains_fields
@dataclass(frozen=True)
class RandomRotation(Warping):
    """
    Rotate by an angle between ``-degrees`` and ``degrees``, or of the range ``degrees``, counter-clockwise.

    The picture keeps its size; it turns about ``center`` (x, y, in pixels from the top left corner), or its middle.
    Pixels are read by ``interpolation``, "nearest" or "bilinear", those of masks always the nearest ones; ``fill`` is
    the colour outside the picture, ``mask_fill`` the number there in masks. Draws one number: the angle.

    Masks, boxes and points move along. A box becomes the one around its turned corners. Neighbours in a list of the
    same interpolation and fill read each pixel once, by one matrix, where torchvision resamples for each of them.
    """

    degrees: float | Sequence[float]
    interpolation: Interpolation = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: float | Sequence[float] | None = 0
    mask_fill: int = 0

    def __post_init__(self) -> None:
        if self.expand:
            raise ValueError("expand=True: expected False: pictures of a batch keep their size")
        object.__setattr__(self, "degrees", _range("degrees", self.degrees))
        object.__setattr__(self, "center", _pair("center", self.center))
        _ = self._look

    @property
    def draws(self) -> int:
        """One number: the angle."""
        return 1

    @property
    def _look(self) -> Look:
        return Look.of(self.interpolation, self.fill, self.mask_fill)

    def warp(self, numbers: NDArray[np.float64], height: Ints, width: Ints) -> Warp:
        angle = _within(self.degrees, numbers[:, 0])
        matrices = affine_matrices(angle=-(angle % 360), center=_from_middle(self.center, height, width))
        return Warp.affine(matrices, self._look)


@explains_fields
@dataclass(frozen=True)
class RandomAffine(Warping):
    """
    Rotate, shift, scale and shear by random amounts; the picture keeps its size.

    ``degrees`` and ``shear`` are ranges of angles, ``(-v, v)`` for a number v; four numbers of ``shear`` are ranges for
    x and y. ``translate`` is the largest shift as a share of width and height, ``scale`` the range of the factor.
    Everything else is as in RandomRotation; angles are clockwise, as in torchvision. Draws six numbers: the angle, the
    shift along x and y, the scale, the shear along x and y.
    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: Interpolation = "nearest"
    fill: float | Sequence[float] | None = 0
    center: Sequence[float] | None = None
    mask_fill: int = 0

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
        _ = self._look

    @property
    def draws(self) -> int:
        """Six numbers: the angle, two for the shift, the scale, two for the shear."""
        return 6

    @property
    def _look(self) -> Look:
        return Look.of(self.interpolation, self.fill, self.mask_fill)

    def warp(self, numbers: NDArray[np.float64], height: Ints, width: Ints) -> Warp:
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
            center=_from_middle(self.center, height, width),
        )
        return Warp.affine(matrices, self._look)


@explains_fields
@dataclass(frozen=True)
class RandomPerspective(Warping):
    """
    Move the four corners inwards by random amounts with probability ``p``; the picture keeps its size.

    A corner moves by less than ``distortion_scale`` of half the side. Everything else is as in RandomRotation, but
    that KeepGeometry has no matrix for it. A picture that is 1 pixel high or wide has no perspective, nor has one with
    three corners moved to a line: it stays as it is, where torchvision raises LinAlgError.

    Draws nine numbers: whether, then x and y of the corners, clockwise from the top left one.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Interpolation = "bilinear"
    fill: float | Sequence[float] | None = 0
    mask_fill: int = 0

    def __post_init__(self) -> None:
        check_probability(self.p)
        if not 0 <= self.distortion_scale <= 1:
            raise ValueError(f"distortion_scale={self.distortion_scale!r}: expected a number from 0 to 1")
        _ = self._look

    @property
    def draws(self) -> int:
        """Nine numbers: whether, and two for each corner."""
        return 9

    @property
    def _look(self) -> Look:
        return Look.of(self.interpolation, self.fill, self.mask_fill)

    def warp(self, numbers: NDArray[np.float64], height: Ints, width: Ints) -> Warp:
        last = np.stack(np.broadcast_arrays(width - 1, height - 1), axis=-1)[:, None]  # (n or 1, 1, 2)
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * last.astype(np.float64)
        bounds = (self.distortion_scale * ((last + 1) // 2)).astype(np.int64) + 1
        inwards = np.floor(numbers[:, 1:].reshape(-1, 4, 2) * bounds)
        # From the left and top a corner moves by 0 to bound - 1, from the right and bottom likewise.
        ends = np.where(corners > 0, corners - (bounds - 1 - inwards), inwards)
        matrices, exists = perspective_matrices(np.broadcast_to(corners, ends.shape), ends)
        return Warp.perspective(matrices, exists & (numbers[:, 0] < self.p), self._look)


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


def _from_middle(
    center: Sequence[float] | None, height: Ints, width: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if center is None:
        return np.zeros(1), np.zeros(1)
    return center[0] - width / 2, center[1] - height / 2
