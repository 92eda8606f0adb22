"""Memory for batches: recycled when the last tensor over it dies, or pinned for copies to a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native

__all__ = ["BatchBuffers"]


class BatchBuffers:
    """
    Lends uninitialised memory for batches, about ``count`` at a time.

    By default it comes from a ring, and returns there when the last tensor over it dies. Pinned memory comes from
    torch's own allocator instead: a copy to the device with ``non_blocking=True`` still reads a batch after its tensor
    has died, and only that allocator knows when the copy is over. A ring would lend the memory again too early.
    """

    def __init__(self, count: int, *, is_pinned: bool) -> None:
        self._count = count
        self._ring = None if is_pinned else _native.BufferRing(count)
        self._largest_bytes = 0

    @property
    def ring(self) -> _native.BufferRing | None:
        """Where native code takes memory from; None if it is pinned."""
        return self._ring

    def take_rows(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[NDArray[Any], torch.Tensor]:
        """An array of this shape and dtype, and a tensor over the same memory."""
        size_bytes = math.prod(shape) * dtype.itemsize
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if self._ring is None:
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
            pinned = torch.empty(tuple(shape), dtype=kind, device="cpu", pin_memory=True)
            return pinned.numpy(), pinned
        rows = self._ring.acquire(size_bytes).view(dtype).reshape(shape)
        return rows, torch.from_numpy(rows)

    @property
    def allocated_bytes(self) -> int:
        """Bytes lent and free. Pinned memory is torch's to count: here it is ``count`` times the largest piece."""
        return self._count * self._largest_bytes if self._ring is None else self._ring.allocated_bytes
