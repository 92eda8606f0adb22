"""The pending steps of a picture as a value, and the algebra that composes them.

    pixels of the source, read in mode `read`
      -> the part `box`
      -> resampled to `scaled` by the filter `kernel`         (not at all if `scaled` is None)
      -> the part `window` of that
      -> luma, if `mode` is "L" and `read` is "RGB"
      -> turned

Every crop, flip, turn and the conversions named in ``converted`` keep this form. So does one resize before any turn;
otherwise ``resized`` returns None, and the caller starts over with the pixels that come out here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fastio.dataset.picture.turn import UPRIGHT, Box, Turn

__all__ = ["CHANNELS", "Pending"]

CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}

# Conversions whose result is the same whether the file is read in one mode or read in the other and converted.
_READ_AS = {("RGB", "L"), ("RGBA", "L"), ("RGBA", "RGB")}


class Pending(NamedTuple):
    """Steps on the way from a source's pixels to a picture's; see the top of this file."""

    box: Box
    scaled: tuple[int, int] | None
    kernel: int  # a number of fastio.codec.filters.FILTERS
    window: Box
    turn: Turn
    read: str
    mode: str

    @staticmethod
    @lru_cache
    def nothing(width: int, height: int, mode: str) -> Pending:
        """Return the plan for the whole source, unchanged."""
        whole = (0, 0, width, height)
        return Pending(whole, None, 0, whole, UPRIGHT, mode, mode)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the result."""
        _, _, width, height = self.window
        return (height, width) if self.turn.transposed else (width, height)

    @property
    def is_grey(self) -> bool:
        """Whether luma of resampled colours is taken at the end."""
        return self.mode != self.read

    def cropped(self, box: Box) -> Pending:
        """Crop the result to a box, which must lie inside."""
        x, y, w, h = self.turn.undone(box, *self.size)
        if self.scaled is None:
            return self._replace(box=(self.box[0] + x, self.box[1] + y, w, h), window=(0, 0, w, h))
        return self._replace(window=(self.window[0] + x, self.window[1] + y, w, h))

    def resized(self, size: tuple[int, int], kernel: int) -> Pending | None:
        """Resample the result to ``size`` (width, height); None if one resampling cannot do it."""
        if self.scaled is not None or self.turn != UPRIGHT or self.is_grey:
            return None
        return self._replace(scaled=size, kernel=kernel, window=(0, 0, *size))

    def turned(self, method: int) -> Pending | None:
        """Turn the result as ``Image.transpose(method)`` does; None if there is no such method."""
        turn = self.turn.then(method)
        return None if turn is None else self._replace(turn=turn)

    def converted(self, mode: str, *, can_read: bool) -> Pending | None:
        """
        Convert the result to another mode; None if Pillow has to do it.

        ``can_read`` says whether the source can be read in modes other than its own.
        """
        if can_read and self.scaled is None and (self.mode, mode) in _READ_AS:
            return self._replace(read=mode, mode=mode)
        if (self.read, self.mode, mode) == ("RGB", "RGB", "L"):
            return self._replace(mode=mode)
        return None
