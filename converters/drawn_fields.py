"""Draws the mask, the boxes and the points of a sample over its picture."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fastio.codec.pillow import decode_mask_with_pillow
from fastio.store import SampleStore
from fastio.store.values import read_values
from fastio.types.schema import Field

__all__ = ["class_colours", "draw_fields", "drawn_fields", "read_fields"]

_OPACITY = 0.45  # of a mask; class 0 is often the background and stays clear
_STEP = 0.618034  # of the colour wheel, from one number to the next: neighbours differ


def drawn_fields(store: SampleStore) -> list[Field]:
    """Return the fields that belong over the picture: the first mask, boxes and points."""
    payload = store.schema.payload
    masks = [field for field in payload if field.traits.is_mask]
    return [*masks[:1], *(field for field in payload if field.is_box or field.is_points)]


def draw_fields(picture: Image.Image, size: tuple[int, int], values: Sequence[tuple[Field, bytes]]) -> None:
    """
    Draw values over ``picture``, RGB, which shows a picture of ``size`` (width, height).

    A mask of another size than the picture, and one that cannot be read, is left out: it is no mask of this picture.
    """
    scale = picture.width / size[0], picture.height / size[1]
    for field, data in values:
        if field.traits.is_mask:
            _draw_mask(picture, size, data)
        elif field.fits(np.array([len(data)])).all():
            rows = np.frombuffer(data, field.dtype).astype(np.float64)
            draw = ImageDraw.Draw(picture)
            if field.is_box:
                _draw_boxes(draw, _corners(rows.reshape(-1, 4), field.geometry) * np.array(scale * 2))
            else:
                _draw_points(draw, rows.reshape(-1, 2) * np.array(scale))


def class_colours() -> NDArray[np.uint8]:
    """256 colours, those of neighbouring numbers far apart; 0 is black. The bits of a number, dealt out in turn."""
    numbers, colours = np.arange(256), np.zeros((256, 3), np.uint8)
    for bit in range(8):
        colours[:, bit % 3] |= ((numbers >> bit & 1) << (7 - bit // 3)).astype(np.uint8)
    return colours


def read_fields(
    store: SampleStore, fields: Sequence[Field], indices: NDArray[np.int64]
) -> list[list[tuple[Field, bytes]]]:
    """Return the encoded values of these fields for each sample."""
    columns = [(field, read_values(store, field.name, indices)) for field in fields]
    return [[(field, spans.view(i).tobytes()) for field, spans in columns] for i in range(len(indices))]


def _draw_mask(picture: Image.Image, size: tuple[int, int], data: bytes) -> None:
    try:
        stored = decode_mask_with_pillow(data).pixels
    except ValueError:
        return
    if stored.shape != (size[1], size[0]):
        return
    rows, columns = (np.arange(to) * of // to for to, of in zip(picture.size[::-1], stored.shape, strict=True))
    numbers = stored[rows][:, columns]
    pixels, colours = np.asarray(picture, np.float64), class_colours()[numbers & 255]
    opacity = np.where(numbers == 0, 0.0, _OPACITY)[:, :, None]
    picture.paste(Image.fromarray((pixels * (1 - opacity) + colours * opacity).round().astype(np.uint8)))


def _draw_boxes(draw: ImageDraw.ImageDraw, corners: NDArray[np.float64]) -> None:
    for number, box in enumerate(corners.tolist()):
        left, top, right, bottom = box
        if left <= right and top <= bottom:
            draw.rectangle((left, top, right, bottom), outline=_colour(number + 1))


def _draw_points(draw: ImageDraw.ImageDraw, points: NDArray[np.float64]) -> None:
    for x, y in points[np.isfinite(points).all(axis=1)].tolist():
        draw.ellipse((x - 1, y - 1, x + 1, y + 1), fill=(255, 255, 0), outline=(0, 0, 0))


def _corners(boxes: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    """Return left, top, right and bottom of boxes in any form."""
    if form == "xyxy":
        return boxes
    first, sizes = boxes[:, :2], boxes[:, 2:]
    first = first - sizes / 2 if form == "cxcywh" else first
    return np.concatenate([first, first + sizes], axis=1)


def _colour(number: int) -> tuple[int, int, int]:
    """Return a bright colour for a number; numbers that follow each other have different ones."""
    red, green, blue = colorsys.hsv_to_rgb(number * _STEP % 1.0, 0.9, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)
