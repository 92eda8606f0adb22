"""A small set of which every pixel is known, behind a server; epochs of it are compared sample by sample."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, Remote
from fastio.converters import Raw, open_source, pack

__all__ = ["Epoch", "KnownSet", "make_known_set"]

_BATCH = 16
_PREFIX = "in"


@dataclass(frozen=True, slots=True)
class KnownSet:
    """``name`` is the pattern of its shards; sample ``n`` has label ``n`` and pixels ``pixels[n]``, (H, W, 3)."""

    name: str
    pixels: NDArray[np.uint8]
    size_bytes: int
    prefix: str = _PREFIX  # of the names of its files

    def epoch(self, url: str, epoch: int = 0, **options: Any) -> Epoch:
        """Open ``url``, read an epoch in a shuffled order and compare it; ``options`` go to Remote."""
        numbers: list[int] = []
        wrong: list[int] = []
        try:
            loader = FastLoader(
                FastDataset(f"{url}/{self.name}", remote=Remote(**options)), _BATCH, shuffle=True, seed=epoch, threads=2
            )
            for images, labels in loader:
                taken = np.asarray(labels)
                numbers += taken.tolist()
                same = (np.asarray(images).transpose(0, 2, 3, 1) == self.pixels[taken]).all(axis=(1, 2, 3))
                wrong += taken[~same].tolist()
        except Exception as exc:  # whatever it is, the storm judges it
            return Epoch(numbers, wrong, exc, complete=False)
        return Epoch(numbers, wrong, None, complete=sorted(numbers) == list(range(len(self.pixels))))


@dataclass(frozen=True, slots=True)
class Epoch:
    """What came: the numbers of the samples, those with other pixels, the error that ended it."""

    numbers: list[int]
    wrong: list[int]
    error: Exception | None
    complete: bool


def make_known_set(folder: Path, *, count: int, side: int, shards: int, raw: bool, seed: int = 0) -> KnownSet:
    """Pack ``count`` pictures of noise, as JPEGs or raw, into about ``shards`` tar shards below ``folder``."""
    source = folder / "source"
    source.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    labels = {}
    for number in range(count):
        name = f"{number:05d}.jpg"
        Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).save(source / name, quality=90)
        labels[name] = number
    (folder / "labels.pkl").write_bytes(pickle.dumps(labels))
    size = sum(path.stat().st_size for path in source.iterdir()) if not raw else count * side * side * 3
    name = f"{_PREFIX}-%06d.tar"
    pack(
        open_source(source, labels=folder / "labels.pkl"),
        folder / name,
        pictures=Raw() if raw else None,
        shard_bytes=size // shards,
    )
    local = FastLoader(FastDataset(folder / name), _BATCH)
    pixels = np.concatenate([np.asarray(images).transpose(0, 2, 3, 1) for images, _ in local])
    return KnownSet(name, pixels, size)
