"""Run one peer once, in this process and in its own environment; the last line printed is the result as JSON.

    python -m benchmarks.peers.measure pack MODULE WORK
    python -m benchmarks.peers.measure load MODULE WORK SECONDS REFERENCE

``WORK`` is JSON (see ``work.py``). Imports nothing that is not in every peer's environment: numpy.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.work import MEAN, STD, Peer, Work, from_json, names_and_numbers
from benchmarks.process_tree import cpu_seconds, timed_epochs

__all__ = ["OutputError", "check_photos", "main", "measure_loading", "measure_packing"]

Check = Callable[[Iterator[Any], Work], dict[str, Any]]

# A random crop shows another part each time: the mean over all photos came out within 2.5 levels of the centre crops'.
MEAN_TOLERANCE = 5.0


class OutputError(Exception):
    """A peer gave other samples, another shape or another type than it was asked for."""


def measure_packing(peer: Peer, work: Work) -> dict[str, Any]:
    """Pack once; ``size_bytes`` is what lies on the disk afterwards, or the photos themselves without a ``pack``."""
    if not hasattr(peer, "pack"):
        return {"size_bytes": _size(work.source), "packs": False}
    work.packed.mkdir(parents=True)
    cpu, wall = cpu_seconds(), time.perf_counter()
    peer.pack(work)
    wall_s, cpu_s = time.perf_counter() - wall, cpu_seconds() - cpu
    return {"size_bytes": _size(work.packed), "packs": True, "wall_s": wall_s, "cpu_s": cpu_s}


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())


def measure_loading(peer: Peer, work: Work, *, seconds: float, check: Check) -> dict[str, Any]:
    """One epoch that is checked and not counted, then whole epochs until ``seconds`` have passed."""
    start = time.perf_counter()
    loader = peer.loader(work)
    batches = iter(loader)
    first = next(batches)
    first_batch_s = time.perf_counter() - start
    checked = check(_chained(first, batches), work)
    del first, batches
    epochs = timed_epochs(lambda: (len(batch[1]) for batch in loader), seconds=seconds)
    return {**epochs, "first_batch_s": first_batch_s, **checked}


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    del first
    yield from rest


def check_photos(reference: NDArray[np.uint8]) -> Check:
    """
    A check of an epoch against ``reference``, Pillow's centre crops of the photos that are repeated to make the set.

    Every sample once, (B, 3, 224, 224) uint8, or float32 for "floats_224". The centre crops are compared pixel by
    pixel: ``error`` is the mean absolute difference from Pillow, of 255. Of random crops only the mean over the epoch
    can be expected.
    """

    def check(batches: Iterator[Any], work: Work) -> dict[str, Any]:
        kind = np.dtype(np.float32 if work.task == "floats_224" else np.uint8)
        numbers: list[int] = []
        means, errors = [], []
        for images, labels in batches:
            pixels, found = np.asarray(images), np.asarray(labels).reshape(-1)
            if pixels.shape != (len(found), 3, 224, 224) or pixels.dtype != kind:
                raise OutputError(f"a batch of {pixels.shape} {pixels.dtype}, expected (B, 3, 224, 224) {kind}")
            means.append(_mean_level(pixels) * len(found))
            if work.task == "center_224":
                errors += [_difference(pixels[i], reference[int(n) % len(reference)]) for i, n in enumerate(found)]
            numbers += map(int, found)
        if sorted(numbers) != list(names_and_numbers(work).values()):
            raise OutputError(f"an epoch of {len(numbers)} samples, {len(set(numbers))} of them different")
        mean, expected = sum(means) / len(numbers), float(reference.mean(dtype=np.float64))
        if abs(mean - expected) > MEAN_TOLERANCE:
            raise OutputError(f"the mean of all pixels is {mean:.1f}, Pillow's centre crops have {expected:.1f}")
        return {"mean": mean, **({"error": math.fsum(errors) / len(errors)} if errors else {})}

    return check


def _mean_level(pixels: NDArray[Any]) -> float:
    """The mean of (B, 3, H, W) in levels of 255, before Normalize where the pixels are floats."""
    channels = pixels.mean(axis=(0, 2, 3), dtype=np.float64)
    return float((channels if pixels.dtype == np.uint8 else 255 * (channels * STD + MEAN)).mean())


def _difference(image: NDArray[np.uint8], expected: NDArray[np.uint8]) -> float:
    return float(np.abs(image.transpose(1, 2, 0).astype(np.int16) - expected).mean())


def main(arguments: list[str]) -> None:
    """``pack MODULE WORK`` or ``load MODULE WORK SECONDS REFERENCE``."""
    action, module, values, *rest = arguments
    work = from_json(json.loads(values))
    peer: Any = import_module(f"benchmarks.peers.{module}")
    if action == "pack":
        result = measure_packing(peer, work)
    else:
        expected = np.load(rest[1], mmap_mode="r")
        result = measure_loading(peer, work, seconds=float(rest[0]), check=check_photos(expected))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
