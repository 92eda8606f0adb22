"""A store of pictures of all proportions, some of them bad, for loaders that resize each by its own rule."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.conftest import encode, write_store

COUNT = 41


def write_pictures(path: Path, *, bad: Iterable[int] = (), kind: str = "PNG") -> Path:
    """Pictures whose labels are their indices; ``bad`` ones are cut off, in pixels and in headers by turns."""
    draw = np.random.default_rng(5)
    values, sizes = [], []
    for _ in range(COUNT):
        height, width = draw.integers(6, 70, 2).tolist()
        values.append(encode(draw.integers(0, 256, (height, width, 3), np.uint8), kind))
        sizes.append((height, width, 3))
    shapes = np.array(sizes, np.int32)
    for place, index in enumerate(bad):
        values[index] = values[index][: 8 if place % 2 else -40]
        shapes[index] = 0 if place % 2 else shapes[index]
    return write_store(path, values, np.arange(COUNT), shapes=shapes)
