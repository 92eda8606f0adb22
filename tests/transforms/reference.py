"""A plan's row executed by Pillow, and torchvision's sampling rules in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.transforms.arguments import KERNELS

__all__ = ["center_crop", "execute", "random_resized_crop", "resized"]

Box = tuple[int, int, int, int]  # left, top, width, height


def execute(
    image: Image.Image, row: Sequence[int], size: tuple[int, int], *, kernel: str, fill: Sequence[int]
) -> NDArray[np.uint8]:
    """Crop, resample, take the window, put it on fill, mirror, in turn; ``size`` is (height, width)."""
    box_x, box_y, box_w, box_h, virtual_w, virtual_h, x, y, w, h, place_x, place_y, flip = map(int, row)
    virtual = image.crop((box_x, box_y, box_x + box_w, box_y + box_h)).resize((virtual_w, virtual_h), KERNELS[kernel])
    assert 0 <= x <= x + w <= virtual_w
    assert 0 <= y <= y + h <= virtual_h
    colour = tuple(fill) if len(fill) > 1 else fill[0] if image.mode == "L" else tuple(fill) * len(image.getbands())
    out = Image.new(image.mode, (size[1], size[0]), colour)
    if w and h:
        out.paste(virtual.crop((x, y, x + w, y + h)), (place_x, place_y))
    if flip & 1:
        out = out.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if flip & 2:
        out = out.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return np.array(out)


def random_resized_crop(
    height: int, width: int, numbers: Sequence[float], *, scale: Sequence[float], ratio: Sequence[float]
) -> Box:
    """
    The rule that torchvision documents, but that no side vanishes.

    Uniform numbers come in the order top, left, then area and ratio of each try.
    """
    for attempt in range(10):
        area, shape = numbers[2 + 2 * attempt], numbers[3 + 2 * attempt]
        target = height * width * (scale[0] + (scale[1] - scale[0]) * area)
        aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * shape)
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return math.floor(numbers[1] * (width - w + 1)), math.floor(numbers[0] * (height - h + 1)), w, h
    w, h = width, height
    if width / height < min(ratio):
        h = max(round(width / min(ratio)), 1)
    elif width / height > max(ratio):
        w = max(round(height * max(ratio)), 1)
    return (width - w) // 2, (height - h) // 2, w, h


def resized(height: int, width: int, size: int | None, max_size: int | None) -> tuple[int, int]:
    """Height and width by torchvision's rule for one number."""
    short, long = min(height, width), max(height, width)
    if size is None:
        assert max_size is not None
        short, long = int(max_size * short / long), max_size
    else:
        short, long = size, int(size * long / short)
        if max_size is not None and long > max_size:
            short, long = int(max_size * short / long), max_size
    short = max(short, 1)
    return (long, short) if width <= height else (short, long)


def center_crop(image: Image.Image, height: int, width: int) -> Image.Image:
    """Edges where the picture is smaller, then the middle."""
    if width > image.width or height > image.height:
        left, top = max(width - image.width, 0) // 2, max(height - image.height, 0) // 2
        padded = Image.new(image.mode, (max(width, image.width), max(height, image.height)))
        padded.paste(image, (left, top))
        image = padded
    x, y = round((image.width - width) / 2.0), round((image.height - height) / 2.0)
    return image.crop((x, y, x + width, y + height))
