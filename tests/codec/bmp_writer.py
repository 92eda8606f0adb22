"""Writes BMPs of every kind by hand: headers, depths and masks that Pillow cannot write."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

__all__ = ["MASKS", "BmpRecipe", "write_bmp"]

# By bits a pixel: the masks of red, green, blue and alpha that Pillow knows.
MASKS = {
    16: [(0xF800, 0x7E0, 0x1F, 0), (0x7C00, 0x3E0, 0x1F, 0)],
    24: [(0xFF0000, 0xFF00, 0xFF, 0)],
    32: [
        (0xFF0000, 0xFF00, 0xFF, 0),
        (0xFF000000, 0xFF0000, 0xFF00, 0),
        (0xFF000000, 0xFF00, 0xFF, 0),
        (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
        (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
        (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
        (0xFF000000, 0xFF00, 0xFF, 0xFF0000),
        (0, 0, 0, 0),
    ],
}


@dataclass(frozen=True)
class BmpRecipe:
    """What a file shall be; the pixels come from the seed."""

    width: int
    height: int
    bits: int = 24
    header_size: int = 40
    top_down: bool = False
    palette: bytes = b""
    colors: int = 0
    masks: tuple[int, int, int, int] | None = None
    compression: int = 0  # unless there are masks
    gap: int = 0  # bytes before the pixels
    seed: int = 0


def write_bmp(recipe: BmpRecipe) -> bytes:
    """A file with random pixels."""
    stride = (recipe.width * recipe.bits + 31) // 32 * 4
    pixels = np.random.default_rng(recipe.seed).bytes(stride * recipe.height)
    height = -recipe.height if recipe.top_down else recipe.height
    compression = 3 if recipe.masks else recipe.compression
    if recipe.header_size == 12:
        header = struct.pack("<IHHHH", 12, recipe.width, recipe.height, 1, recipe.bits)
    else:
        fields = (recipe.header_size, recipe.width, height, 1, recipe.bits, compression, 0, 0, 0, recipe.colors, 0)
        masks = struct.pack("<4I", *(recipe.masks or (0, 0, 0, 0)))
        header = struct.pack("<IiiHHIIiiII", *fields)
        header += masks[:12] if recipe.header_size == 40 and recipe.masks else b""
        header += (masks + bytes(68))[: recipe.header_size - 40]
    start = 14 + len(header) + len(recipe.palette) + recipe.gap
    return (
        b"BM"
        + struct.pack("<IHHI", start + len(pixels), 0, 0, start)
        + header
        + recipe.palette
        + bytes(recipe.gap)
        + pixels
    )
