"""A small set like CIFAR-10 that can be learned, as files and stores: a class is a colour and a place, under noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastio.converters import open_source, pack
from tests.conftest import encode

CLASSES = 4
SUFFIXES = ("lmdb", "h5", "tar")


def coloured(count: int, *, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures (count, 32, 32, 3) and classes 0, 1, 2, 3, 0, ..."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    pixels = random.integers(0, 128, (count, 32, 32, 3))
    for picture, label in zip(pixels, labels, strict=True):
        top, left = 16 * (label // 2), 16 * (label % 2)
        picture[top : top + 16, left : left + 16, label % 3] += 100
    return pixels.astype(np.uint8), labels


def as_folder(folder: Path, count: int, *, seed: int = 0) -> Path:
    """Class folders of PNGs."""
    for number, (picture, label) in enumerate(zip(*coloured(count, seed=seed), strict=True)):
        path = folder / f"class{label}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(picture))
    return folder


def as_stores(folder: Path) -> dict[str, Path]:
    """The folder packed into each format."""
    stores = {suffix: folder.with_name(f"{folder.name}.{suffix}") for suffix in SUFFIXES}
    for store in stores.values():
        pack(open_source(folder), store)
    return stores
