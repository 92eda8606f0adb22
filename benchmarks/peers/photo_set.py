"""The photos that all peers read: real or made ones, repeated to a set of whole batches, and Pillow's crops of them."""

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
from benchmarks.peers.catalogue import PHOTO_TASKS, PHOTOS
from benchmarks.peers.suite import Suite
from benchmarks.synthetic import make_photos

__all__ = ["BATCH_SIZE", "SAMPLES", "photo_suite"]

BATCH_SIZE = 128
SAMPLES = 12 * BATCH_SIZE  # whole batches, an even number of them: two workers have the same to do
SUFFIXES = (".jpg", ".jpeg")


def photo_suite(root: Path, *, photos: Path | None) -> Suite:
    """
    The JPEGs below ``photos``, or made ones, as a flat folder of SAMPLES files; made once for the same names and sizes.

    File ``n`` is photo ``n % len(expected)`` of the source; ``expected`` holds Pillow's Resize(256), CenterCrop(224)
    of each, (photos, 224, 224, 3).
    """
    source = photos or make_photos(root / "made-photos")
    paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise click.UsageError(f"--photos {source}: no JPEG below it; expected .jpg or .jpeg files")
    paths = paths[:: -(-len(paths) // SAMPLES)]
    listing = "\n".join(f"{path.relative_to(source)} {path.stat().st_size}" for path in paths)
    home = root / f"photos-{hashlib.sha256(listing.encode()).hexdigest()[:12]}"
    suite = Suite(
        tasks=tuple(PHOTO_TASKS),
        entries=PHOTOS,
        source=home / "photos",
        labels=home / "numbers.pkl",
        expected=home / "pillow.npy",
        packed=home / "packed",
        batch_size=BATCH_SIZE,
        settings={
            "photos": "given" if photos else "made",
            "distinct": len(paths),
            "samples": SAMPLES,
            "batch_size": BATCH_SIZE,
        },
    )
    if not suite.labels.exists():
        shutil.rmtree(home, ignore_errors=True)
        suite.source.mkdir(parents=True)
        suite.packed.mkdir()
        names = [f"{number:06d}.jpg" for number in range(SAMPLES)]
        for number, name in enumerate(names):
            shutil.copyfile(paths[number % len(paths)], suite.source / name)
        np.save(suite.expected, np.stack([_pillow_crop(path) for path in paths]))
        suite.labels.write_bytes(pickle.dumps({name: number for number, name in enumerate(names)}))
    return suite


def _pillow_crop(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as file:
        return np.asarray(files_pil.center_224(file.convert("RGB")))
