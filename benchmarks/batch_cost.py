"""
CPU time that a loader needs for a batch, and until the first one: ``python -m benchmarks.batch_cost``.

    [--python A --python B ...] [--rounds 5] [--out FILE]

``--python`` is an interpreter that has fastio installed, of whatever commit; with several, rounds are interleaved, and
ratios are those to the first, each of one round. Each measurement is a fresh process, which knows only fastio's public
names. Batches are of 64 texts in buckets, of 128 raw pictures of 32x32 in order and shuffled, and of packed texts,
8,192 tokens; nothing is done with them. ``process`` is the CPU time of all threads in microseconds a batch, ``loop``
that of the thread that asks for batches, ``first`` the microseconds from ``iter`` to the loader's first batch.
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
THREADS = 2
CASES = ("texts in buckets", "raw, in order", "raw, shuffled", "texts packed")
FIGURES = ("process", "loop", "first")


def make_stores(folder: Path) -> None:
    """Pack texts of 5 to 400 ids, and raw pictures with labels, from a seed."""
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


def loader_of(case: str, folder: Path) -> Any:
    """A loader of the installed fastio."""
    from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler

    if case.startswith("raw"):
        return FastLoader(folder / "pictures.lmdb", 128, shuffle=case.endswith("shuffled"), threads=THREADS)
    dataset = FastDataset(folder / "texts.lmdb")
    if case == "texts packed":
        packing = PackSampler(dataset.lengths, max_tokens=TOKENS)
        return FastLoader(dataset, batch_sampler=packing, collate="pack", threads=THREADS)
    return FastLoader(dataset, batch_sampler=LengthBucketSampler(dataset.lengths, batch_size=64), threads=THREADS)


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
        for _ in range(EPOCHS):
            for _ in loader:
                count += 1
        process, own = time.process_time() - process, time.thread_time() - own
    figures = {"process": process / count, "loop": own / count, "first": first}
    return {name: 1e6 * seconds for name, seconds in figures.items()}


def measure_apart(python: str, case: str, folder: Path) -> dict[str, float]:
    """The same, in a fresh process of this interpreter; CalledProcessError when it fails."""
    command = [python, "-P", __file__, "--case", case, "--folder", folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
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
                print(f"{case:18} {name:8} {spread(values):>28} µs   {spread(ratios):>24} x   {python}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(measure(given.case, given.folder)))
        return
    pythons = given.python or [sys.executable]
    runs: dict[str, dict[str, list[dict[str, float]]]] = {case: {python: [] for python in pythons} for case in CASES}
    with tempfile.TemporaryDirectory() as name:
        make_stores(Path(name))
        for number in range(given.rounds):
            for case in CASES:
                for python in pythons if number % 2 == 0 else pythons[::-1]:
                    runs[case][python].append(measure_apart(python, case, Path(name)))
    tell(runs)
    if given.out is not None:
        report = {"machine": platform.platform(), "threads": THREADS, "unit": "microseconds", "runs": runs}
        given.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
