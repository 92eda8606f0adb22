"""Writes GIFs of every kind by hand: interlaced, with frames beside the screen, with tables that are full."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GifRecipe", "lzw", "write_gif"]

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class GifRecipe:
    """What a file shall be; the pixels come from the seed."""

    screen: tuple[int, int]
    frame: Box  # x, y, width, height
    bits: int = 8
    interlaced: bool = False
    palette: bytes = b""  # of the screen
    local_palette: bytes = b""
    transparent: int | None = None
    runs: int = 1  # how often an index is repeated: longer strings of codes
    clear_every: int = 5000  # codes
    comment: bytes = b""
    seed: int = 0


def lzw(indices: list[int], bits: int, clear_every: int) -> bytes:
    """The codes of an encoder that goes on with a full table until it has written ``clear_every``."""
    clear = 1 << bits
    value, filled, size, since = clear, bits + 1, bits + 1, 0
    table: dict[tuple[int, ...], int] = {(index,): index for index in range(clear)}
    next_code, string = clear + 2, (indices[0],)
    for index in [*indices[1:], None]:
        if index is not None and (*string, index) in table:
            string = (*string, index)
            continue
        value |= table[string] << filled
        filled += size
        since += 1
        if index is None:
            break
        if since >= clear_every:
            size += next_code == 1 << size and size < 12
            value |= clear << filled
            filled += size
            table = {(index,): index for index in range(clear)}
            next_code, size, since = clear + 2, bits + 1, 0
        elif next_code < 4096:
            if next_code == 1 << size:
                size += 1
            table[(*string, index)] = next_code
            next_code += 1
        string = (index,)
    size += next_code == 1 << size and size < 12
    value |= (clear + 1) << filled
    return value.to_bytes((filled + size + 7) // 8, "little")


def _order(height: int, *, interlaced: bool) -> NDArray[np.int64]:
    rows = np.arange(height)
    if not interlaced:
        return rows
    return np.concatenate([rows[::8], rows[4::8], rows[2::4], rows[1::2]])


def _flags(palette: bytes) -> int:
    return 0x80 | (len(palette) // 3).bit_length() - 2 if palette else 0


def write_gif(recipe: GifRecipe) -> bytes:
    """A file with one frame of random pixels."""
    x, y, width, height = recipe.frame
    pixels = np.random.default_rng(recipe.seed).integers(0, 1 << recipe.bits, width * height)
    indices = np.repeat(pixels, recipe.runs)[: width * height].reshape(height, width)
    stored = indices[_order(height, interlaced=recipe.interlaced)].ravel().tolist()
    codes = lzw(stored, recipe.bits, recipe.clear_every)
    blocks = [codes[start : start + 255] for start in range(0, len(codes), 255)]
    control = b""
    if recipe.transparent is not None:
        control = b"!\xf9\x04\1\0\0" + bytes([recipe.transparent]) + b"\0"
    comment = b"!\xfe" + bytes([len(recipe.comment)]) + recipe.comment + b"\0" if recipe.comment else b""
    flags = _flags(recipe.local_palette) | 64 * recipe.interlaced
    return b"".join(
        [
            b"GIF89a" + struct.pack("<HHBBB", *recipe.screen, _flags(recipe.palette), 0, 0) + recipe.palette,
            comment + control,
            b"," + struct.pack("<HHHHB", x, y, width, height, flags) + recipe.local_palette,
            bytes([recipe.bits]) + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0;",
        ]
    )
