"""
The steps that a picture has noted: how they compose, and how they are carried out.

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

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Transpose

from fastio import _native
from fastio.codec.codec import Geometry
from fastio.codec.copied import RawCodec
from fastio.codec.pillow import FILTERS
from fastio.types.spans import Spans

__all__ = [
    "Pending",
    "by_pillow",
    "empty_row",
    "from_array",
    "frozen",
    "geometry",
    "native_filter",
    "plain_size",
    "reduces_first",
    "turned",
]


CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}

# Conversions whose result is the same whether the file is read in one mode or read in the other and converted.
_READ_AS = {("RGB", "L"), ("RGBA", "L"), ("RGBA", "RGB")}


class Pending(NamedTuple):
    """Steps on the way from a source's pixels to a picture's; see the top of this file."""

    box: Box
    scaled: tuple[int, int] | None
    kernel: int  # a number of fastio.codec.pillow.FILTERS
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


# Flips and turns by 90 degrees: the eight orientations of a picture, and how they compose.

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


# Carries out pending steps: by the native core, from encoded or decoded pixels, or step by step by Pillow.

Pixels = NDArray[np.uint8]  # (H, W, C), C contiguous

_ZERO32: Final = np.zeros(1, np.int32)
_ZERO64: Final = np.zeros(1, np.int64)


def geometry(pending: Pending, stored: tuple[int, int] | None) -> Geometry:
    """Return the native core's plan for everything except ``turned``; ``stored`` is height and width of raw pixels."""
    virtual = pending.scaled or pending.box[2:]
    plan = np.array([(*pending.box, *virtual, *pending.window, 0, 0, _flips_natively(pending.turn))], np.int32)
    fill = bytes(CHANNELS[pending.mode])
    return Geometry(plan, filter=pending.kernel, fill=fill, is_grey=pending.is_grey, stored=stored)


def empty_row(pending: Pending) -> Pixels:
    """Return memory for the native core's result, ``(1, H, W, C)``."""
    _, _, width, height = pending.window
    return np.empty((1, height, width, CHANNELS[pending.mode]), np.uint8)


def turned(pixels: Pixels, pending: Pending) -> Pixels:
    """Apply what is left of the turn to the native core's result."""
    if pending.turn.transposed:
        return np.ascontiguousarray(pending.turn.apply(pixels))
    return np.ascontiguousarray(pixels[::-1]) if pending.turn.flip_y else pixels


def from_array(pixels: Pixels, mode: str, pending: Pending) -> Pixels:
    """Return the result from decoded pixels of this mode, in new memory."""
    if pending.read != mode or (pending.is_grey and pending.scaled is None):
        return turned(by_pillow(pixels, mode, pending), pending)
    if pending.scaled is None:
        x, y, w, h = pending.box
        return pending.turn.apply(pixels[y : y + h, x : x + w]).copy()
    flat = pixels.reshape(-1)
    spans = Spans(_native.Buffers([flat]), _ZERO32, _ZERO64, np.array([flat.size], np.int64))
    rows, status = empty_row(pending), np.zeros(1, np.int32)
    height, width, _ = pixels.shape
    RawCodec().decode(spans, rows, status, verify=False, geometry=geometry(pending, (height, width))).wait()
    if status[0] != _native.OK:  # no memory for it: Pillow finds some, or says so
        rows[0] = by_pillow(pixels, mode, pending)
    return turned(rows[0], pending)


def by_pillow(pixels: Pixels, mode: str, pending: Pending) -> Pixels:
    """Do with Pillow, step by step, what the native core would do to decoded pixels of this mode."""
    picture = Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels)
    if mode != pending.read:
        picture = picture.convert(pending.read)
    picture = _crop(picture, pending.box)
    if pending.scaled is not None:
        picture = _crop(picture.resize(pending.scaled, FILTERS[pending.kernel]), pending.window)
    if pending.is_grey:
        picture = picture.convert(pending.mode)
    result: Pixels = np.array(picture).reshape(picture.height, picture.width, -1)
    return np.ascontiguousarray(result[:, ::-1]) if _flips_natively(pending.turn) else result


def frozen(pixels: Pixels) -> Pixels:
    """Return the array, read-only from now on: pictures share it."""
    pixels.flags.writeable = False
    return pixels


def _flips_natively(turn: Turn) -> bool:
    return turn.flip_x and not turn.transposed


def _crop(picture: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    left, top, width, height = box
    return picture.crop((left, top, left + width, top + height))


# Decides which of Pillow's resizes the native core can do to the bit.

_NUMBERS: Final = {int(resampling): number for number, resampling in enumerate(FILTERS)}
_TRIED: Final = ((13, 60), (90, 120), (20, 11), (60, 30))  # sizes that 41 x 97 pixels become
_LONGEST_SIDE: Final = 1 << 20  # a number of the native core


def native_filter(resample: int | None) -> int | None:
    """
    Return the native core's number for one of Pillow's filters (None: its default), or None if Pillow has to do it.
    """
    number = _NUMBERS.get(int(Image.Resampling.BICUBIC) if resample is None else resample)
    return number if number is not None and _equals_pillow(number) else None


def plain_size(size: Iterable[Any]) -> tuple[int, int] | None:
    """Return width and height as Python numbers, or None for values that Pillow may refuse."""
    sides = tuple(size)
    if len(sides) != 2 or not all(isinstance(side, (int, np.integer)) for side in sides):
        return None
    width, height = int(sides[0]), int(sides[1])
    return (width, height) if 0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE else None


def reduces_first(old: tuple[int, int], new: tuple[int, int], gap: float | None) -> bool:
    """
    Return whether ``reducing_gap`` has an effect (or is wrong): Pillow then averages whole blocks before resampling.
    """
    if gap is None:
        return False
    return not gap >= 1.0 or any(int(before / after / gap) > 1 for before, after in zip(old, new, strict=True))


@cache
def _equals_pillow(number: int) -> bool:
    """
    Return whether this process's Pillow resamples like the native core, tested on a small picture.

    Pillow-SIMD does not: it computes other weights.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (97, 41, 3), np.uint8)
    for size in _TRIED:
        pending = Pending.nothing(41, 97, "RGB").resized(size, number)
        assert pending is not None
        if not np.array_equal(from_array(pixels, "RGB", pending), by_pillow(pixels, "RGB", pending)):
            return False
    return True
