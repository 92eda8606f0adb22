"""Carries out pending steps: by the native core, from encoded or decoded pixels, or step by step by Pillow."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.codec.codec import Geometry
from fastio.codec.filters import FILTERS
from fastio.codec.raw import RawCodec
from fastio.dataset.picture.pending import CHANNELS, Pending
from fastio.dataset.picture.turn import Turn
from fastio.types.spans import Spans

__all__ = ["by_pillow", "empty_row", "from_array", "frozen", "geometry", "turned"]

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
