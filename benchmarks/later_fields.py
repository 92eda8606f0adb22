"""Fields that come later: what matching keys takes, and what loading two stores side by side costs beside one store.

python -m benchmarks.later_fields [--folder DIR] [--keys 1000000] [--samples 20000] [--rounds 5]

Keys are ``%012d.jpg`` in two stores, in one order and in another; memory is what the process holds beyond the stores'
own indexes. Samples are a 32x32 PNG and an array of 1 kB: packed together, or side by side in one order or another. All
are loaded in this process by one thread, by turns; samples a second of CPU time, median and range of the rounds.
"""

from __future__ import annotations

import io
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, Writer, beside, open_store
from fastio._native import Buffers
from fastio.store import SampleBatch, SampleStore, create_store
from fastio.store.beside.match import match_keys
from fastio.types.schema import RAW, Field, Schema
from fastio.types.spans import Spans

__all__ = ["main"]

_BLOCK = 1 << 18
_BYTE = Schema((Field("value", RAW, "|u1", (1,)),))


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), help="For the stores.  [default: a temporary one]")
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--samples", default=20_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(*, folder: Path | None, keys: int, samples: int, rounds: int) -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        click.echo(f"{platform.processor() or platform.machine()}\n")
        _matching(Path(inside), keys)
        _loading(Path(inside), samples, rounds)


def _matching(folder: Path, count: int) -> None:
    orders = {"the same order": np.arange(count), "another order": np.random.default_rng(0).permutation(count)}
    first = open_store(_keys(folder / "first.h5", orders["the same order"]))
    for name, order in orders.items():
        other = open_store(_keys(folder / f"{name.split()[0]}.h5", order))
        before, wall, cpu = _memory(), time.perf_counter(), time.process_time()
        match = match_keys(first, other)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert match.rows is None or (order[match.rows[:1000]] == np.arange(min(1000, count))).all()
        held = max(0, _memory() - before) / 1e6
        click.echo(f"{count:,} keys in {name}: {wall:.1f} s, {cpu:.1f} s of CPU, {held:,.0f} MB more at most")
    click.echo()


def _keys(path: Path, numbers: NDArray[np.int64]) -> Path:
    with create_store(path, _BYTE) as writer:
        for start in range(0, len(numbers), _BLOCK):
            part = numbers[start : start + _BLOCK].tolist()
            ones, places = np.ones(len(part), np.int64), np.arange(len(part))
            spans = Spans(Buffers([np.zeros(len(part), np.uint8)]), np.zeros(len(part), np.int32), places, ones)
            writer.append(SampleBatch([f"{number:012d}.jpg" for number in part], {"value": spans}))
    return path


def _memory() -> int:
    """Bytes that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _loading(folder: Path, count: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(count)
    fields = {"image": "image", "embedding": "float32[256]"}
    pictures = [_png(rng.integers(0, 256, (32, 32, 3), np.uint8)) for _ in range(256)]

    def packed(name: str, names: list[str], order: NDArray[np.int64]) -> Path:
        with Writer(folder / name, {each: fields[each] for each in names}) as writer:
            for number in order.tolist():
                values = {"image": pictures[number % 256], "embedding": np.full(256, number, np.float32)}
                writer.write({each: values[each] for each in names}, key=f"{number:08d}")
        return folder / name

    one = packed("one.lmdb", list(fields), np.arange(count))
    photos = packed("photos.lmdb", ["image"], np.arange(count))
    in_order = packed("in_order.h5", ["embedding"], np.arange(count))
    otherwise = packed("otherwise.h5", ["embedding"], shuffled)
    cases: dict[str, Callable[[], SampleStore]] = {
        "one store": lambda: open_store(one),
        "side by side, in one order": lambda: beside(photos, in_order),
        "side by side, in another": lambda: beside(photos, otherwise),
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds + 1):  # the first one warms the caches
        for name, opened in cases.items():
            with opened() as store, FastLoader(FastDataset(store), 256, shuffle=True, threads=1) as loader:
                begun = time.process_time()
                read = sum(len(batch["image"]) for batch in loader)
                rates[name].append(read / (time.process_time() - begun))
    base = statistics.median(rates["one store"][1:])
    for name, each in rates.items():
        rest = each[1:]
        median = statistics.median(rest)
        click.echo(
            f"{name}: {median:,.0f} ({min(rest):,.0f}-{max(rest):,.0f}) samples per CPU-second, {median / base:.3f}"
        )


if __name__ == "__main__":
    main()
