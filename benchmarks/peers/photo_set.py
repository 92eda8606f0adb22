"""A set of pictures that all peers read: photos given or made, as they are or converted, and Pillow's crops of them."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.peers import files_pil
from benchmarks.peers.picture_sets import PICTURE_SETS
from benchmarks.peers.suite import Suite
from benchmarks.synthetic import make_photos

__all__ = ["photo_suite"]

SUFFIXES = (".jpg", ".jpeg")


def photo_suite(root: Path, *, photos: Path | None, pictures: str) -> Suite:
    """
    The JPEGs below ``photos``, or made ones, as a flat folder of pictures of one kind; made once for the same photos.

    ``pictures`` names a row of PICTURE_SETS. File ``n`` is picture ``n % len(expected)``; ``expected`` holds Pillow's
    Resize(256), CenterCrop(224) of each, (pictures, 224, 224, 3).
    """
    kind = PICTURE_SETS[pictures]
    source = photos or make_photos(root / "made-photos")
    paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise click.UsageError(f"--photos {source}: no JPEG below it; expected .jpg or .jpeg files")
    distinct = min(kind.distinct, len(paths))
    chosen = paths[:: -(-len(paths) // distinct)]
    listing = "\n".join(f"{path.relative_to(source)} {path.stat().st_size}" for path in chosen)
    home = root / f"{pictures}-{hashlib.sha256(listing.encode()).hexdigest()[:12]}"
    suite = Suite(
        pictures=pictures,
        source=home / "photos",
        labels=home / "numbers.pkl",
        expected=home / "pillow.npy",
        packed=home / "packed",
        settings={"photos": "given" if photos else "made", "distinct": len(chosen), "samples": kind.samples},
    )
    if not suite.labels.exists():
        shutil.rmtree(home, ignore_errors=True)
        suite.source.mkdir(parents=True)
        suite.packed.mkdir()
        names = [f"{number:06d}{kind.suffix}" for number in range(kind.samples)]
        for number, name in enumerate(names):
            if number < len(chosen):
                kind.make(chosen, number, suite.source / name)
            else:
                shutil.copyfile(suite.source / names[number % len(chosen)], suite.source / name)
        np.save(suite.expected, np.stack([_pillow_crop(suite.source / name) for name in names[: len(chosen)]]))
        suite.labels.write_bytes(pickle.dumps({name: number for number, name in enumerate(names)}))
    return suite


def _pillow_crop(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as file:
        return np.asarray(files_pil.center_224(file.convert("RGB")))
