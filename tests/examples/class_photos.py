"""Small photos in class folders, one class for each photo: labels then tell which samples came."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import encode, pictures

__all__ = ["COUNT", "write_class_photos"]

COUNT = 24


def write_class_photos(folder: Path) -> None:
    """Write ``COUNT`` JPEGs of 48 x 40 pixels, the number of each being the name of its class."""
    for number, pixels in enumerate(pictures(COUNT, (40, 48, 3))):
        (folder / f"{number:02d}").mkdir(parents=True)
        (folder / f"{number:02d}" / f"{number:02d}.jpg").write_bytes(encode(pixels, "JPEG"))
