"""
CPU time that a loader needs for a batch, and until the first one: ``python -m benchmarks.batch_cost``.

    [--python A --python B ...] [--rounds 5] [--photos DIR] [--scenes DIR] [--case CASE ...] [--out FILE]

``--python`` is an interpreter that has fastio installed, of whatever commit; with several, rounds are interleaved, and
ratios are those to the first, each of one round: above 1, the first needs more. Each measurement is a fresh process,
which knows only fastio's public names, and reads stores that this interpreter packed. Nothing is done with the batches:

* 64 texts in buckets; texts packed, 8,192 tokens
* 128 raw pictures of 32x32, in order and shuffled
* 50 photos, by RandomResizedCrop(224) and flip, or by Resize(256) and CenterCrop(224); the same with their captions
* one line: 50 photos by FastDataset in a DataLoader, cropped by Pillow
* 8 scenes: picture and mask, by RandomCrop(256) and flip

``process`` is the CPU time of all threads in microseconds a batch, ``loop`` that of the thread that asks for batches,
``first`` the microseconds from ``iter`` to the loader's first batch. Photos in class folders and scenes with
metadata.jsonl are made from a seed unless folders are given.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["main"]

TEXTS, PICTURES = 40_000, 50_000
TOKENS = 8192  # of a packed batch
EPOCHS = 4  # measured; one before them is not
PHOTO_EPOCHS = 2
THREADS = 2
PHOTOS = ("photos, random crops", "photos, centre crops", "photos and captions", "photos, one line")
CASES = ("texts in buckets", "raw, in order", "raw, shuffled", "texts packed", *PHOTOS, "scenes")
FIGURES = ("process", "loop", "first")


def make_stores(folder: Path, photos: Path, scenes: Path) -> None:
    """Pack texts of 5 to 400 ids, and raw pictures with labels, from a seed; photos, with captions too; scenes."""
    from fastio import Writer
    from fastio.converters import open_source, pack
    from fastio.store import SampleBatch, create_store
    from fastio.types.schema import COLUMN, RAW, Field, Schema
    from fastio.types.schema import TOKENS as IDS
    from fastio.types.spans import Spans

    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 401, TEXTS)
    texts = rng.integers(0, 50_000, int(lengths.sum()), np.uint16).view(np.uint8)
    pixels = rng.integers(0, 256, PICTURES * 32 * 32 * 3, np.uint8)
    made = {
        "texts": (Field("text", IDS, "<u2", (None,)), texts, 2 * lengths),
        "pictures": (Field("image", RAW, "|u1", (32, 32, 3)), pixels, np.full(PICTURES, 32 * 32 * 3)),
    }
    for name, (field, data, sizes) in made.items():
        spans = Spans.of(data, np.cumsum(sizes) - sizes, sizes.astype(np.int64))
        keys = [f"{number:06d}" for number in range(len(sizes))]
        labels = {"label": rng.integers(0, 10, len(sizes))}
        with create_store(folder / f"{name}.lmdb", Schema((field, Field("label", COLUMN, "<i8", ())))) as writer:
            writer.append(SampleBatch(keys, {field.name: spans}, labels, {}))
            writer.close()
    pack(open_source(photos), folder / "photos.lmdb")
    pack(open_source(scenes), folder / "scenes.lmdb")
    with Writer(folder / "captions.lmdb", fields={"image": "image", "caption": "text"}) as out:
        for number, path in enumerate(sorted(path for path in photos.rglob("*") if path.is_file())):
            out.write({"image": path, "caption": f"Photo {number} of {path.parent.name}."}, key=str(number))


def loader_of(case: str, folder: Path) -> Any:
    """A loader of the installed fastio."""
    from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler

    if case == "photos, one line":
        return DataLoaderOf(FastDataset(folder / "photos.lmdb", _cropped))
    if case in PHOTOS or case == "scenes":
        return _pictures_of(case, folder)
    if case.startswith("raw"):
        return FastLoader(folder / "pictures.lmdb", 128, shuffle=case.endswith("shuffled"), threads=THREADS)
    dataset = FastDataset(folder / "texts.lmdb")
    if case == "texts packed":
        packing = PackSampler(dataset.lengths, max_tokens=TOKENS)
        return FastLoader(dataset, batch_sampler=packing, collate="pack", threads=THREADS)
    return FastLoader(dataset, batch_sampler=LengthBucketSampler(dataset.lengths, batch_size=64), threads=THREADS)


def _pictures_of(case: str, folder: Path) -> Any:
    from fastio import FastDataset, FastLoader
    from fastio.transforms import CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize

    if case == "scenes":
        scenes = FastDataset(folder / "scenes.lmdb", fields=("image", "mask"))
        steps = [RandomCrop(256), RandomHorizontalFlip()]
        return FastLoader(scenes, 8, shuffle=True, threads=THREADS, transforms=steps)
    random = [RandomResizedCrop(224), RandomHorizontalFlip()]
    steps = [Resize(256), CenterCrop(224)] if "centre" in case else random
    store = folder / ("captions.lmdb" if "captions" in case else "photos.lmdb")
    return FastLoader(store, 50, shuffle=True, threads=THREADS, transforms=steps)


def _cropped(picture: Any) -> Any:
    """A quarter of the area from the middle, resized by Pillow."""
    width, height = picture.size
    part = picture.crop((width // 4, height // 4, width // 4 + width // 2, height // 4 + height // 2))
    return np.array(part.resize((224, 224), 2))


class DataLoaderOf:
    """torch's DataLoader over a dataset, with FastLoader's manners."""

    def __init__(self, dataset: Any) -> None:
        from torch.utils.data import DataLoader

        self._loader: Any = DataLoader(dataset, 50, shuffle=True)

    def __enter__(self) -> Any:
        return self._loader

    def __exit__(self, *_: object) -> None:
        pass


def measure(case: str, folder: Path) -> dict[str, float]:
    """Microseconds of this process; see the module."""
    with loader_of(case, folder) as loader:
        begun = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first = time.perf_counter() - begun
        for _ in batches:
            pass
        count = 0
        process, own = time.process_time(), time.thread_time()
        for _ in range(PHOTO_EPOCHS if case in (*PHOTOS, "scenes") else EPOCHS):
            for _ in loader:
                count += 1
        process, own = time.process_time() - process, time.thread_time() - own
    figures = {"process": process / count, "loop": own / count, "first": first}
    return {name: 1e6 * seconds for name, seconds in figures.items()}


def apart(python: str, *arguments: str | Path) -> dict[str, float]:
    """What this module prints as JSON in a fresh process of this interpreter; CalledProcessError when it fails."""
    done = subprocess.run([python, "-P", __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def spread(values: list[float]) -> str:
    """The median, and the least and the most."""
    return f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g})"


def tell(runs: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    """Print a line for each case, figure and interpreter."""
    for case, by_python in runs.items():
        base = next(iter(by_python.values()))
        for name in FIGURES:
            for python, figures in by_python.items():
                values = [run[name] for run in figures]
                ratios = [run[name] / value for run, value in zip(base, values, strict=True)]
                print(f"{case:20} {name:8} {spread(values):>28} µs   {spread(ratios):>24} x   {python}")


def _files(folder: Path, photos: Path | None, scenes: Path | None) -> tuple[Path, Path]:
    """Absolute paths of those that are given; the others are made."""
    from benchmarks.fields.scenes import make_scenes
    from benchmarks.synthetic import make_photos

    return (photos or make_photos(folder / "photos")).resolve(), (scenes or make_scenes(folder / "scenes")).resolve()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--scenes", type=Path)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of stores, for one case alone
    parser.add_argument("--pack", type=Path, help=argparse.SUPPRESS)  # into this folder, and no more
    given = parser.parse_args()
    if given.pack is not None:
        make_stores(given.pack, given.photos, given.scenes)
        print("{}")
        return
    if given.folder is not None:
        print(json.dumps(measure(given.case[0], given.folder)))
        return
    cases, pythons = given.case or CASES, given.python or [sys.executable]
    runs: dict[str, dict[str, list[dict[str, float]]]] = {case: {python: [] for python in pythons} for case in cases}
    with tempfile.TemporaryDirectory() as name:
        photos, scenes = _files(Path(name), given.photos, given.scenes)
        folders = {python: Path(name) / str(number) for number, python in enumerate(pythons)}
        for python, folder in folders.items():
            folder.mkdir()
            apart(python, "--pack", folder, "--photos", photos, "--scenes", scenes)
        for number in range(given.rounds):
            for case in cases:
                for python in pythons if number % 2 == 0 else pythons[::-1]:
                    runs[case][python].append(apart(python, "--case", case, "--folder", folders[python]))
    tell(runs)
    if given.out is not None:
        report = {"machine": platform.platform(), "threads": THREADS, "unit": "microseconds", "runs": runs}
        given.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
