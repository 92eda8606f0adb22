"""Packing from Python compared with ``fastio pack``: ``python -m benchmarks.python_packing``.

The same pictures and labels, from a seed, into each format, in this process: once from files by
``fastio.converters.pack``, which is what the command runs; by ``fastio.Writer`` and ``fastio.pack`` from bytes that a
program holds; by ``fastio.Writer`` from the files' paths; and from decoded pixels, compared with Pillow encoding the
same PNGs by itself. Rounds are interleaved; each ratio is that of one round, by CPU time of the process, with all its
threads.
"""

from __future__ import annotations

import argparse
import io
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import fastio
from benchmarks.synthetic import make_photos, make_pngs
from fastio.converters import open_source, pack

__all__ = ["main"]

_SUFFIXES = (".lmdb", ".h5", ".tar")
_FIELDS = {"image": "image", "label": "label"}


def _cpu_s(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _written(out: Path, values: list[tuple[str, object, int]]) -> None:
    with fastio.Writer(out, _FIELDS, overwrite=True) as writer:
        for key, value, label in values:
            writer.write({"image": value, "label": label}, key=key)


def _pillow(arrays: list[NDArray[np.uint8]]) -> None:
    for array in arrays:
        Image.fromarray(array).save(io.BytesIO(), "PNG")


def _cases(folder: Path, files: list[Path], out: Path) -> dict[str, Callable[[], object]]:
    """The work of each case; the first is what others are compared with."""
    labels = {file.name: number % 10 for number, file in enumerate(files)}
    label_file = folder / "labels.pkl"
    label_file.write_bytes(pickle.dumps(labels))
    data = [(file.name, file.read_bytes(), labels[file.name]) for file in files]
    samples = [{"image": value, "label": label} for _, value, label in data]
    paths = [(file.name, str(file), labels[file.name]) for file in files]
    return {
        "fastio pack": lambda: pack(open_source(files[0].parent, labels=label_file), out, overwrite=True),
        "Writer, bytes": lambda: _written(out, data),
        "fastio.pack, bytes": lambda: fastio.pack(samples, out, fields=_FIELDS, overwrite=True),
        "Writer, paths": lambda: _written(out, paths),
    }


def _pixel_cases(files: list[Path], out: Path) -> dict[str, Callable[[], object]]:
    arrays = [np.asarray(Image.open(io.BytesIO(file.read_bytes())).convert("RGB")) for file in files[:2000]]
    values: list[tuple[str, object, int]] = [(f"{i:05d}", array, 0) for i, array in enumerate(arrays)]
    return {"Pillow's PNGs alone": lambda: _pillow(arrays), "Writer, pixels": lambda: _written(out, values)}


def _table(title: str, cases: dict[str, Callable[[], object]], count: int, rounds: int) -> None:
    seconds = {name: list[float]() for name in cases}
    for number in range(rounds + 1):  # the first warms the caches
        for name, work in cases.items():
            spent = _cpu_s(work)
            if number:
                seconds[name].append(spent)
    first = next(iter(cases))
    for name, spent in seconds.items():
        ratios = [a / b for a, b in zip(seconds[first], spent, strict=True)]
        print(
            f"{title:24}  {name:20}  {count / statistics.median(spent):10,.0f} samples/CPU-s  "
            f"{statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pngs(folder / "pngs", arguments.count)
        make_photos(folder / "classes", arguments.count // 20, sizes=[(375, 500)])
        (folder / "photos").mkdir()
        for photo in (folder / "classes").rglob("*.jpg"):
            photo.rename(folder / "photos" / photo.name)
        for title, place in (("32x32 PNG", "pngs"), ("JPEG of 500x375", "photos")):
            files = sorted((folder / place).iterdir())
            for suffix in _SUFFIXES:
                out = folder / f"out{suffix}"
                _table(f"{title}, {suffix}", _cases(folder, files, out), len(files), arguments.rounds)
                if place == "pngs":
                    _table(f"32x32 pixels, {suffix}", _pixel_cases(files, out), min(2000, len(files)), arguments.rounds)
                out.unlink()


if __name__ == "__main__":
    main()
