"""Flips and turns by 90 degrees: the eight orientations of a picture, and how they compose."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Transpose

__all__ = ["UPRIGHT", "Box", "Turn"]

Box = tuple[int, int, int, int]  # left, top, width, height


class Turn(NamedTuple):
    """Exchange x and y if ``transposed``, then mirror left to right if ``flip_x``, then top to bottom if ``flip_y``."""

    transposed: bool = False
    flip_x: bool = False
    flip_y: bool = False

    def then(self, method: int) -> Turn | None:
        """This turn followed by one of ``Image.Transpose``; None if Pillow knows no such method."""
        step = _STEPS.get(method)
        if step is None:
            return None
        flips = (self.flip_y, self.flip_x) if step.transposed else (self.flip_x, self.flip_y)
        return Turn(self.transposed ^ step.transposed, flips[0] ^ step.flip_x, flips[1] ^ step.flip_y)

    def undone(self, box: Box, width: int, height: int) -> Box:
        """Return where a box of the turned picture (``width`` x ``height``) lies in the picture before the turn."""
        x, y, w, h = box
        if self.flip_x:
            x = width - x - w
        if self.flip_y:
            y = height - y - h
        return (y, x, h, w) if self.transposed else (x, y, w, h)

    def apply(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a turned view of pixels ``(H, W, C)``."""
        if self.transposed:
            pixels = pixels.swapaxes(0, 1)
        if self.flip_x:
            pixels = pixels[:, ::-1]
        return pixels[::-1] if self.flip_y else pixels


UPRIGHT: Final = Turn()

_STEPS: Final[dict[int, Turn]] = {
    Transpose.FLIP_LEFT_RIGHT: Turn(flip_x=True),
    Transpose.FLIP_TOP_BOTTOM: Turn(flip_y=True),
    Transpose.ROTATE_90: Turn(transposed=True, flip_y=True),
    Transpose.ROTATE_180: Turn(flip_x=True, flip_y=True),
    Transpose.ROTATE_270: Turn(transposed=True, flip_x=True),
    Transpose.TRANSPOSE: Turn(transposed=True),
    Transpose.TRANSVERSE: Turn(transposed=True, flip_x=True, flip_y=True),
}
