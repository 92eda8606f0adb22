"""Where warped pictures are read: matrices of rotations, shears and perspectives, their product, their programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio.transforms.arguments import Fill, Interpolation, as_fill, as_kernel, as_mask_fill
from fastio.transforms.program import Program, Step, program_of

__all__ = [
    "Look",
    "Warp",
    "affine_matrices",
    "perspective_matrices",
    "warp_program",
]

Floats = NDArray[np.float64]
Sides = NDArray[Any]  # heights or widths, (n,) or (1,)


@dataclass(frozen=True)
class Look:
    """
    How pixels are read: bilinear, or the nearest one; and the colour outside the picture, in masks ``mask_fill``.

    Without ``fill`` it is black, and bilinear edges fade into it; with one they fade twice, as torchvision's do.
    """

    is_bilinear: bool
    fill: Fill | None
    mask_fill: int = 0

    @classmethod
    def of(cls, interpolation: Interpolation, fill: float | Sequence[float] | None, mask_fill: int = 0) -> Look:
        """Read the arguments of a transform. Raises ValueError for another interpolation, or an impossible colour."""
        kernel = as_kernel(interpolation)
        if kernel not in ("nearest", "bilinear"):
            raise ValueError(f"interpolation={interpolation!r}: expected 'nearest' or 'bilinear'")
        return cls(kernel == "bilinear", None if fill is None else as_fill(fill), as_mask_fill(mask_fill))

    @property
    def of_masks(self) -> Look:
        """How the numbers of masks are read."""
        return Look(False, (self.mask_fill,))


@dataclass(frozen=True)
class Warp:
    """
    Where ``n`` warped pictures are read: matrices ``(n, 3, 3)``, which take positions ``(x, y, 1)`` of the result.

    ``kinds``, ``(n,)``, says from where they count: ``Step.AFFINE`` from the picture's middle, ``Step.PERSPECTIVE``
    from its top left corner; a picture of ``Step.NONE`` stays as it is.
    """

    kinds: NDArray[np.int64]
    matrices: Floats
    look: Look
    bends: bool = False  # whether there may be perspectives

    @classmethod
    def affine(cls, matrices: Floats, look: Look) -> Warp:
        """Return that of ``affine_matrices``."""
        return cls(np.full(len(matrices), Step.AFFINE), _square(matrices), look)

    @classmethod
    def perspective(cls, matrices: Floats, applies: NDArray[np.bool_], look: Look) -> Warp:
        """Return that of ``perspective_matrices``, for the pictures for which ``applies`` is set."""
        return cls(np.where(applies, Step.PERSPECTIVE, Step.NONE), _square(matrices), look, bends=True)

    def only(self, chosen: NDArray[np.bool_]) -> Warp:
        """Return this warp of the pictures for which ``chosen``, ``(n,)``, is set; the others stay as they are."""
        return replace(self, kinds=np.where(chosen, self.kinds, Step.NONE))

    def then(self, later: Warp, height: Sides, width: Sides) -> Warp:
        """
        Return this warp and a later one of the same look as one, which reads each pixel once.

        What the first would move out of the picture, and the second back into it, is seen.
        """
        is_bent = (self.kinds == Step.PERSPECTIVE) | (later.kinds == Step.PERSPECTIVE)
        bent = self.from_corner(height, width) @ later.from_corner(height, width)
        flat = self.matrices @ later.matrices  # of two affine ones
        both = np.where(is_bent[:, None, None], _scaled(bent), flat)
        is_first, is_later = self.kinds != Step.NONE, later.kinds != Step.NONE
        matrices = np.where(is_first[:, None, None], self.matrices, later.matrices)
        matrices = np.where((is_first & is_later)[:, None, None], both, matrices)
        kinds = np.where(is_bent, Step.PERSPECTIVE, np.maximum(self.kinds, later.kinds))
        return replace(self, kinds=kinds, matrices=matrices, bends=self.bends or later.bends)

    def from_corner(self, height: Sides, width: Sides) -> Floats:
        """Return all matrices as counted from the top left corner, for pictures of these sizes."""
        middle = np.tile(np.eye(3), (len(self.kinds), 1, 1))
        middle[:, 0, 2], middle[:, 1, 2] = np.asarray(width) / 2, np.asarray(height) / 2
        away = middle.copy()
        away[:, :2, 2] *= -1
        kinds = self.kinds[:, None, None]
        moved = np.where(kinds == Step.AFFINE, middle @ self.matrices @ away, self.matrices)
        return np.where(kinds == Step.NONE, np.eye(3), moved)

    def forward(self, height: Sides, width: Sides) -> Floats:
        """Return matrices the other way, from the picture to the result, both from the corner; up to a factor each."""
        first, second, third = np.moveaxis(self.from_corner(height, width), 1, 0)
        columns = (np.cross(second, third), np.cross(third, first), np.cross(first, second))
        return np.stack(columns, axis=-1)

    @property
    def program(self) -> Program:
        """The program of pictures, one step."""
        return self._program(self.look)

    @property
    def mask_program(self) -> Program:
        """The program of masks."""
        return self._program(self.look.of_masks)

    def _program(self, look: Look) -> Program:
        numbers = self.matrices.reshape(-1, 9)[:, :8].copy()
        numbers[self.kinds == Step.AFFINE, 6:] = 0
        program = warp_program(numbers, look)
        program[:, 0, 0] = self.kinds
        program[self.kinds == Step.NONE] = 0
        return program


def _square(matrices: Floats) -> Floats:
    """Return matrices (n, 3, 3) from (n, 6) or (n, 8), whose last numbers are the same for all."""
    count, columns = matrices.shape
    rest = np.broadcast_to([0.0, 0.0, 1.0][columns - 6 :], (count, 9 - columns))
    return np.concatenate((matrices, rest), axis=1).reshape(-1, 3, 3)


def warp_program(matrices: Floats, look: Look) -> Program:
    """Return a program of one step for matrices (n, 6), or (n, 8) with a divisor, as ``Step.PERSPECTIVE``."""
    count, columns = matrices.shape
    fill = (0,) if look.fill is None else look.fill
    colour = np.resize(np.array(fill[:3], np.float64), 3)
    amounts = np.zeros((count, 13))
    amounts[:, :columns] = matrices
    amounts[:, 8:] = [look.is_bilinear, look.fill is not None, *colour]
    return program_of(count, (Step.AFFINE if columns == 6 else Step.PERSPECTIVE, amounts))


def affine_matrices(
    *,
    angle: ArrayLike = 0.0,
    translate: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
    scale: ArrayLike = 1.0,
    shear: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
    center: tuple[ArrayLike, ArrayLike] = (0.0, 0.0),
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
    x, y = (np.asarray(value, np.float64) for value in center)
    back = (d / size, -b / size, -c / size, a / size)
    first = x - back[0] * (x + shift_x) - back[1] * (y + shift_y)
    second = y - back[2] * (x + shift_x) - back[3] * (y + shift_y)
    columns = np.broadcast_arrays(back[0], back[1], first, back[2], back[3], second)
    return np.stack([np.atleast_1d(column) for column in columns], axis=1)


def perspective_matrices(starts: Floats, ends: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """
    Return matrices (n, 8) that map (x, y, 1) of the result to where it is read, in pixels, divided by a third row.

    ``starts`` (n, 4, 2) are corners of the pictures, ``ends`` (n, 4, 2) their places in the results. Also returns, for
    each picture, whether it has such a matrix: it has none if three of its corners lie on a line, before or after.
    """
    (_, first_shares), (last, last_shares) = _triangles(starts), _triangles(ends)
    exists = (first_shares != 0).all(axis=1) & (last_shares != 0).all(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(exists[:, None], first_shares / last_shares, 1.0)
    corners = np.concatenate((starts, np.ones((len(starts), 4, 1))), axis=2)[:, :3]
    matrices = (corners * shares[:, :3, None]).swapaxes(1, 2) @ last
    return _scaled(np.where(exists[:, None, None], matrices, np.eye(3))).reshape(-1, 9)[:, :8], exists


def _triangles(corners: Floats) -> tuple[Floats, Floats]:
    """
    Return the adjugates (n, 3, 3) of the first three of four corners (n, 4, 2), and the shares (n, 4) of all four.

    The fourth corner is the sum of the others by three of these shares of their triangle; the last number is not 0 if
    there is such a triangle.
    """
    points = np.concatenate((corners, np.ones((len(corners), 4, 1))), axis=2)
    a, b, c, d = np.moveaxis(points, 1, 0)
    adjugates = np.stack((np.cross(b, c), np.cross(c, a), np.cross(a, b)), axis=1)
    area = (adjugates[:, 0] * a).sum(axis=1)
    parts = (adjugates @ d[:, :, None])[..., 0]
    whole = np.where(area == 0, 1.0, area)[:, None]
    return adjugates, np.concatenate((parts / whole, area[:, None] != 0), axis=1)


def _scaled(matrices: Floats) -> Floats:
    """
    Return perspectives (n, 3, 3) with 1 as their last number, which programs leave out.

    0 stands for a first pixel that is read infinitely far away: there it is read very far away.
    """
    last = matrices[:, 2:, 2:]
    least = np.finfo(np.float64).eps * np.abs(matrices).max(axis=(1, 2), keepdims=True)
    return matrices / np.where(np.abs(last) < least, least, last)
