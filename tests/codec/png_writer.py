"""Writes PNGs of every kind by hand: depths, interlacing and filters that Pillow cannot write."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["SAMPLES", "PngRecipe", "chunk", "write_png"]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # per pixel, by colour type
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


@dataclass(frozen=True)
class PngRecipe:
    """What a file shall be; the pixels come from the seed."""

    width: int
    height: int
    depth: int = 8
    color: int = 2
    interlaced: bool = False
    palette: bytes = b""
    transparency: bytes = b""
    pieces: int = 1  # IDAT chunks
    seed: int = 0


def chunk(name: bytes, payload: bytes) -> bytes:
    """One chunk with its length and CRC."""
    return struct.pack(">I", len(payload)) + name + payload + struct.pack(">I", zlib.crc32(name + payload))


def write_png(recipe: PngRecipe) -> bytes:
    """A valid file: random samples, and a random filter for each row."""
    random = np.random.default_rng(recipe.seed)
    limit = len(recipe.palette) // 3 if recipe.color == 3 else 1 << recipe.depth
    shape = (recipe.height, recipe.width, SAMPLES[recipe.color])
    samples = random.integers(0, min(limit, 1 << recipe.depth), shape)
    passes = ADAM7 if recipe.interlaced else ((0, 0, 1, 1),)
    raw = b"".join(_rows(recipe, samples[y::dy, x::dx], random) for x, y, dx, dy in passes)
    stream = zlib.compress(raw)
    cuts = np.linspace(0, len(stream), recipe.pieces + 1).astype(int).tolist()
    header = (recipe.width, recipe.height, recipe.depth, recipe.color, 0, 0, int(recipe.interlaced))
    return b"".join(
        [
            SIGNATURE,
            chunk(b"IHDR", struct.pack(">IIBBBBB", *header)),
            chunk(b"PLTE", recipe.palette) if recipe.palette else b"",
            chunk(b"tRNS", recipe.transparency) if recipe.transparency else b"",
            *(chunk(b"IDAT", stream[a:b]) for a, b in pairwise(cuts)),
            chunk(b"IEND", b""),
        ]
    )


def _rows(recipe: PngRecipe, samples: NDArray[np.int64], random: np.random.Generator) -> bytes:
    """The rows of one pass: packed, filtered, each behind its filter byte."""
    if 0 in samples.shape:
        return b""
    distance = max(SAMPLES[recipe.color] * recipe.depth // 8, 1)
    above = None
    parts = []
    for row in samples:
        packed = _pack(row.reshape(-1), recipe.depth)
        kind = int(random.integers(0, 5))
        parts.append(bytes([kind]) + _filter(kind, packed, above if above is not None else packed * 0, distance))
        above = packed
    return b"".join(parts)


def _pack(samples: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """Samples to bytes, high bits first."""
    if depth == 16:
        return np.stack([samples >> 8, samples & 255], axis=-1).reshape(-1)
    bits = (samples[:, None] >> np.arange(depth - 1, -1, -1)) & 1
    return np.packbits(bits.reshape(-1).astype(np.uint8)).astype(np.int64)


def _filter(kind: int, row: NDArray[np.int64], above: NDArray[np.int64], distance: int) -> bytes:
    """One of PNG's five filters, from their definition."""
    left = np.concatenate([np.zeros(distance, np.int64), row])[: len(row)]
    corner = np.concatenate([np.zeros(distance, np.int64), above])[: len(row)]
    predicted = (0 * row, left, above, (left + above) // 2, _paeth(left, above, corner))[kind]
    return ((row - predicted) % 256).astype(np.uint8).tobytes()


def _paeth(left: NDArray[np.int64], above: NDArray[np.int64], corner: NDArray[np.int64]) -> NDArray[np.int64]:
    estimate = left + above - corner
    to_left, to_above, to_corner = abs(estimate - left), abs(estimate - above), abs(estimate - corner)
    is_left = (to_left <= to_above) & (to_left <= to_corner)
    return np.where(is_left, left, np.where(to_above <= to_corner, above, corner))
