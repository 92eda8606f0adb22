"""Matrices of rotations, shears and shifts, by which each pixel is read from elsewhere in its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio.transforms.arguments import Fill, Interpolation, as_fill, as_kernel
from fastio.transforms.batch.program import Program, Step, program_of

__all__ = ["Look", "affine_matrices", "warp_program"]


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
