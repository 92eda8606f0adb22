"""Small photos in class folders: one class for each photo, so that labels tell which samples came, or red and green."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.conftest import encode, pictures

__all__ = ["COUNT", "write_class_photos", "write_red_and_green"]

COUNT = 24


def write_class_photos(folder: Path) -> None:
    """Write ``COUNT`` JPEGs of 48 x 40 pixels, the number of each being the name of its class."""
    for number, pixels in enumerate(pictures(COUNT, (40, 48, 3))):
        (folder / f"{number:02d}").mkdir(parents=True)
        (folder / f"{number:02d}" / f"{number:02d}.jpg").write_bytes(encode(pixels, "JPEG"))


def write_red_and_green(folder: Path) -> None:
    """Write JPEGs of two classes, red and green under noise: 32 below ``train``, 16 below ``val``."""
    random = np.random.default_rng(0)
    for part, count in (("train", 32), ("val", 16)):
        for number in range(count):
            pixels = random.integers(0, 128, (80, 96, 3), np.uint8)
            pixels[:, :, number % 2] += 100
            of_class = folder / part / ("red", "green")[number % 2]
            of_class.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(of_class / f"{number}.jpg")
