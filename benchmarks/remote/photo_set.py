"""The photos of the benchmark: real or made ones, repeated until they are as large as asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.synthetic import make_photos

__all__ = ["SampleSet", "photo_set"]

SUFFIXES = (".jpg", ".jpeg")


@dataclass(frozen=True, slots=True)
class SampleSet:
    """``samples`` in ``path``, here a flat folder of files; ``home`` is the folder of all that belongs to this set."""

    home: Path
    path: Path
    samples: int
    size_bytes: int
    distinct: int


def photo_set(root: Path, *, photos: Path | None, gigabytes: float) -> SampleSet:
    """Link the JPEGs below ``photos``, or made ones, again and again; made once for the same names, sizes and size."""
    source = photos or make_photos(root / "made-photos")
    paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise click.UsageError(f"--photos {source}: no JPEG below it; expected .jpg or .jpeg files")
    sizes = [path.stat().st_size for path in paths]
    repeats = max(1, -(-int(gigabytes * 1e9) // sum(sizes)))
    listing = "\n".join(f"{path.relative_to(source)} {size}" for path, size in zip(paths, sizes, strict=True))
    home = root / f"remote-{hashlib.sha256(f'{listing} {repeats}'.encode()).hexdigest()[:12]}"
    photo_folder, complete = home / "photos", home / "photos-complete"
    if not complete.exists():
        shutil.rmtree(home, ignore_errors=True)
        photo_folder.mkdir(parents=True)
        for number, path in enumerate(paths):
            shutil.copyfile(path, photo_folder / _name(number))
        for number in range(len(paths), repeats * len(paths)):
            os.link(photo_folder / _name(number % len(paths)), photo_folder / _name(number))
        complete.touch()
    return SampleSet(home, photo_folder, repeats * len(paths), repeats * sum(sizes), len(paths))


def _name(number: int) -> str:
    return f"{number:06d}.jpg"
