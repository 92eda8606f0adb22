"""Masks that Pillow decodes, transformed by the plan of their batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fastio.codec.codec import Geometry
from fastio.codec.mask import fill_number
from fastio.codec.nearest import nearest_row

__all__ = ["PlannedMasks"]


@dataclass(frozen=True, slots=True)
class PlannedMasks:
    """
    Makes rows of a batch from masks that Pillow decoded. Satisfies ``PixelsToRow``.

    ``geometry`` is what ``RowReader.decode`` was called with, ``size`` the height and width of the batch's rows.
    """

    geometry: Geometry
    size: tuple[int, int]

    @classmethod
    def of(cls, geometry: Geometry, rows: NDArray[Any]) -> PlannedMasks:
        """Return them for a batch of ``rows`` ``(n, H, W)``, ``(n, H, W, C)`` or, if planar, ``(n, C, H, W)``."""
        first = 2 if geometry.is_planar and rows.ndim == 4 else 1
        return cls(geometry, (rows.shape[first], rows.shape[first + 1]))

    def channels(self, position: int) -> int:
        """Not asked for: masks are decoded as stored."""
        raise NotImplementedError

    def row(self, position: int, pixels: NDArray[Any]) -> NDArray[Any] | None:
        """As PixelsToRow.row; None for a mask of another size than ``geometry.sizes`` says."""
        geometry = self.geometry
        if geometry.sizes is not None and pixels.shape[:2] != tuple(geometry.sizes[position].tolist()):
            return None
        row = nearest_row(pixels, geometry.plan[position].tolist(), self.size, fill=fill_number(geometry))
        return row.transpose(2, 0, 1) if row is not None and row.ndim == 3 and geometry.is_planar else row
