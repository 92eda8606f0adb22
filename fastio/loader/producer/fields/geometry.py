"""The field that KeepGeometry adds to a batch: where the pictures of its samples were moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.loader.producer.fields.rows import PendingRowFields
from fastio.transforms.joint import GEOMETRY

__all__ = ["PendingGeometry"]


class PendingGeometry:
    """One float32 matrix ``(2, 3)`` a sample; zeros for one whose picture has a bad header. See PendingFields."""

    def __init__(self, rows: PendingRowFields, count: int, *, is_pinned: bool) -> None:
        self._rows = rows
        self._count = count
        self._is_pinned = is_pinned

    def errors(self) -> dict[int, SampleError]:
        """Return none: the picture's field has them."""
        return {}

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        frames = self._rows.frames()
        assert frames is not None
        matrices = frames.affine(self._count)
        tensor = torch.from_numpy(matrices if kept is None else matrices[kept])
        return {GEOMETRY: tensor.pin_memory() if self._is_pinned else tensor}

    def cancel(self) -> None:
        """Do nothing: nothing was begun."""
