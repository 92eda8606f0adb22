"""The kinds of pictures that sets of photos are made of, from JPEGs: as they are, or converted by Pillow."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

__all__ = ["PICTURE_SETS", "PictureSet"]

# Writes picture ``number`` to a path, from the photos.
Make = Callable[[Sequence[Path], int, Path], object]

MOSAIC = (4000, 3000)
TILE = (500, 375)


@dataclass(frozen=True, slots=True)
class PictureSet:
    """``distinct`` pictures at most, repeated until there are ``samples``: a multiple of all batches, an even one."""

    make: Make
    suffix: str
    samples: int
    distinct: int


def _copied(photos: Sequence[Path], number: int, out: Path) -> None:
    shutil.copyfile(photos[number], out)


def _webp(photos: Sequence[Path], number: int, out: Path) -> None:
    with Image.open(photos[number]) as photo:
        photo.convert("RGB").save(out, "WEBP", quality=90)


def _cmyk(photos: Sequence[Path], number: int, out: Path) -> None:
    with Image.open(photos[number]) as photo:
        photo.convert("RGB").convert("CMYK").save(out, "JPEG", quality=90)


def _progressive(photos: Sequence[Path], number: int, out: Path) -> None:
    with Image.open(photos[number]) as photo:
        photo.convert("RGB").save(out, "JPEG", quality=90, progressive=True)


def _mosaic(photos: Sequence[Path], number: int, out: Path) -> None:
    """12 megapixels of photos side by side: enlarging one would give smooth pictures, which decode faster."""
    picture = Image.new("RGB", MOSAIC)
    places = [(x, y) for y in range(0, MOSAIC[1], TILE[1]) for x in range(0, MOSAIC[0], TILE[0])]
    for tile, place in enumerate(places):
        with Image.open(photos[(number * len(places) + tile) % len(photos)]) as photo:
            picture.paste(photo.convert("RGB").resize(TILE, Image.Resampling.BICUBIC), place)
    picture.save(out, "JPEG", quality=90)


PICTURE_SETS: Final = {
    "jpeg": PictureSet(_copied, ".jpg", 1536, 1536),
    "webp": PictureSet(_webp, ".webp", 768, 384),
    "cmyk": PictureSet(_cmyk, ".jpg", 768, 384),
    "progressive": PictureSet(_progressive, ".jpg", 768, 384),
    "large": PictureSet(_mosaic, ".jpg", 64, 16),
}
