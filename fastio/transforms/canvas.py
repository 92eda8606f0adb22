"""What transforms act on: pictures of known sizes, as a batch's plan or as the pixels of one picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.arguments import Fill

__all__ = ["Canvas", "Ints", "PixelFunction"]

Ints = NDArray[np.int64]
PixelFunction = Callable[[NDArray[np.uint8], NDArray[np.float64]], None]  # changes pixels (H, W, C) by numbers (k,)


class Canvas(Protocol):
    """
    What transforms act on: pictures of known sizes, in steps that are the same for a plan and for pixels.

    All sizes and positions are int64 arrays, ``(n,)`` or ``(1,)`` where they are the same for all
    pictures. Positions are those of the picture as the steps before have left it.
    """

    height: Ints
    width: Ints
    doing: object  # the transform whose steps these are, for messages

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        """Keep a part, which lies inside."""
        ...

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        """Resample, antialiased, with one of ``arguments.KERNELS``."""
        ...

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill) -> None:
        """Add edges of one colour; none where all are 0."""
        ...

    def flip(self, mask: NDArray[np.bool_]) -> None:
        """Exchange left and right where ``mask`` is set."""
        ...

    def grey(self, channels: int) -> None:
        """Luma as Pillow's "L", in 1 channel or in 3 equal ones."""
        ...

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        """Let a function that numba has compiled change the pixels, by ``numbers`` ``(n, k)``."""
        ...
