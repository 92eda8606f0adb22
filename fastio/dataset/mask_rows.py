"""MaskRows: masks that Pillow decodes, as the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fastio.codec.codec import Geometry
from fastio.codec.mask import fill_number
from fastio.codec.nearest import nearest_row

__all__ = ["MaskRows"]


@dataclass(frozen=True, slots=True)
class MaskRows:
    """
    Makes rows of a batch from the numbers of masks.

    ``geometry`` is what ``RowReader.decode`` was called with (None: rows are whole masks), ``size`` the height and
    width of the rows.
    """

    geometry: Geometry | None
    size: tuple[int, int]

    @classmethod
    def of(cls, geometry: Geometry | None, rows: NDArray[Any]) -> MaskRows:
        """Return them for a batch of ``rows`` ``(n, H, W)``, ``(n, H, W, C)`` or, if planar, ``(n, C, H, W)``."""
        first = 2 if geometry is not None and geometry.is_planar and rows.ndim == 4 else 1
        return cls(geometry, (rows.shape[first], rows.shape[first + 1]))

    def row(self, position: int, numbers: NDArray[Any]) -> NDArray[Any] | None:
        """
        Transform a mask ``(H, W)`` or ``(H, W, C)`` to the row at this position; None if it has another size than
        ``geometry.sizes`` says.
        """
        geometry = self.geometry
        if geometry is None:
            return numbers
        if geometry.sizes is not None and numbers.shape[:2] != tuple(geometry.sizes[position].tolist()):
            return None
        row = nearest_row(numbers, geometry.plan[position].tolist(), self.size, fill=fill_number(geometry))
        return row.transpose(2, 0, 1) if row is not None and row.ndim == 3 and geometry.is_planar else row
