"""Read a file that is not in the page cache, in seven ways: MB/s side by side, and ratios.

python -m benchmarks.cold [--rounds 3] [--mb 600] [--sample-kb 110] [--memory 256MB] [--folder DIR]

Each case of each round is a fresh process that reads a file whose pages were dropped (fsync, then
posix_fadvise(DONTNEED): this file's only, no rights needed). The file must be far larger than the 64 MiB that the
loader reads ahead. Random samples are read from a tenth of it only, so that what the kernel read around one fault
does not serve the next. Raw samples: decoding is no part of it. Rounds are interleaved: a disk shared with others
slows all cases. "lanes" is shuffle=True for a memory (FASTIO_SHUFFLE_MEMORY) that does not hold the store, "held" for
one that does, and "blocks" what fastio took before there were lanes, by a state of that time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

__all__ = ["main"]

HERE = Path(__file__).parent
_FOLDER = click.Path(file_okay=False, path_type=Path)
_RANDOM_SHARE = 0.1
_TRIES = 10
_LOOKED_AT = 256  # places of the file, for whether it is cold


def make_store(path: Path, *, mb: int, sample_kb: int) -> Path:
    """A store of ``mb`` megabytes of raw samples, random bytes from a seed; made once."""
    from fastio.store import SampleBatch, create_store
    from fastio.types.schema import COLUMN, RAW, Field, Schema
    from fastio.types.spans import Spans

    if path.exists():
        return path
    size, count = sample_kb * 1000, mb * 1000 // sample_kb
    schema = Schema((Field("x", RAW, "|u1", (size,)), Field("label", COLUMN, "<i8", ())))
    rng = np.random.default_rng(0)
    step = max(1, (32 << 20) // size)
    with create_store(path, schema) as writer:
        for first in range(0, count, step):
            labels = np.arange(first, min(first + step, count))
            data = rng.integers(0, 256, len(labels) * size, np.uint8)
            spans = Spans.joined(data, np.full(len(labels), size, np.int64))
            writer.append(SampleBatch([str(i) for i in labels], {"x": spans}, {"label": labels % 10}))
    return path


def drop(path: Path) -> None:
    """Take the file out of the page cache; an error where some of it stays there."""
    with path.open("rb") as file:
        for _ in range(_TRIES):
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            step = path.stat().st_size // _LOOKED_AT
            cached = sum(_is_cached(file.fileno(), at) for at in range(0, path.stat().st_size, step))
            if cached <= _LOOKED_AT // 20:
                return
            time.sleep(1)  # the kernel still holds pages that were used a moment ago
    raise click.ClickException(f"{path}: {cached} of {_LOOKED_AT} places are still cached; who else has it open?")


def _is_cached(descriptor: int, at: int) -> bool:
    try:
        os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def read_plain(path: Path, seconds: float) -> int:
    """The file from first to last byte by ``read`` of 4 MiB, as dd does."""
    buffer, total, end = bytearray(4 << 20), 0, time.perf_counter() + seconds
    with path.open("rb", buffering=0) as file:
        while (got := file.readinto(buffer)) and time.perf_counter() < end:
            total += got
    return total


def read_random(path: Path, seconds: float) -> int:
    """Samples in random order copied out of a mapping, as a map-style dataset does; a tenth of the file at most."""
    from fastio.store import open_store

    store = open_store(path)
    order = np.random.default_rng(1).permutation(len(store))
    total, end = 0, time.perf_counter() + seconds
    for index in order:
        total += store.spans("x", np.array([index])).view(0).copy().nbytes
        # Later on it would find what the kernel has read around earlier faults: no file larger than memory gives that.
        if time.perf_counter() > end or total > _RANDOM_SHARE * path.stat().st_size:
            break
    return total


def _loaded(
    shuffle: bool | str, *, memory: str = "1TB", read: str = "map", order: str | None = None
) -> Callable[[Path, float], int]:
    """The samples of a FastLoader: ``memory`` "" is that of the command line, ``order`` the kind in a state."""

    def read_all(path: Path, seconds: float) -> int:
        from fastio import FastDataset, FastLoader

        os.environ["FASTIO_SHUFFLE_MEMORY"] = memory or os.environ.get("COLD_MEMORY", "256MB")
        dataset = FastDataset(path, read=read)
        size = int(dataset.reader.field.nbytes)
        total, end = 0, time.perf_counter() + seconds
        with FastLoader(dataset, max(1, (4 << 20) // size), shuffle=shuffle, threads=2) as loader:
            if order is not None:
                loader.load_state_dict({**loader.state_dict(), "order": {"kind": order}})
            for _, labels in loader:
                total += len(labels) * size
                if time.perf_counter() > end:
                    break
        return total

    return read_all


CASES: dict[str, Callable[[Path, float], int]] = {
    "plain sequential read of the file": read_plain,
    "FastLoader, in order": _loaded(False),
    "FastLoader, block shuffle": _loaded(True, order="blocks"),
    "FastLoader, lanes": _loaded(True, memory=""),
    "FastLoader, lanes by pread": _loaded(True, memory="", read="pread"),
    "FastLoader, held: full shuffle": _loaded(True),
    "random samples of a mapping": read_random,
}
PLAIN, _, BLOCKS, LANES, PREAD, HELD, RANDOM = CASES


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=5.0, show_default=True, help="A case ends after this time, or with the file.")
@click.option("--mb", default=600, show_default=True, help="Size of the file, made once.")
@click.option("--sample-kb", default=110, show_default=True, help="Size of a sample.")
@click.option("--memory", default="256MB", show_default=True, help="What the page cache may hold, for lanes.")
@click.option("--folder", type=_FOLDER, default=HERE / ".data", help="Where: the disk that is measured.")
@click.option("--case", type=click.Choice(list(CASES)), hidden=True, help="Measure one case in this process.")
def main(rounds: int, seconds: float, mb: int, sample_kb: int, memory: str, folder: Path, case: str | None) -> None:
    """Run every case ROUNDS times, in turn; print MB/s of samples, median and range."""
    folder.mkdir(parents=True, exist_ok=True)
    path = make_store(folder / f"cold-{mb}mb-{sample_kb}kb.h5", mb=mb, sample_kb=sample_kb)
    if case is not None:
        import fastio.loader.fast_loader  # noqa: F401 - torch's import is no part of reading

        begun = time.perf_counter()
        total = CASES[case](path, seconds)
        click.echo(json.dumps(total / 1e6 / (time.perf_counter() - begun)))
        return
    environ = {**os.environ, "COLD_MEMORY": memory}
    rates: dict[str, list[float]] = defaultdict(list)
    command = [sys.executable, "-m", "benchmarks.cold", *_options(seconds, mb, sample_kb, folder), "--case"]
    for _ in range(rounds):
        for name in CASES:
            drop(path)
            done = subprocess.run(
                [*command, name], capture_output=True, text=True, cwd=HERE.parent, check=True, env=environ
            )
            rates[name].append(json.loads(done.stdout))
    for name, found in rates.items():
        click.echo(f"{name:36} {statistics.median(found):8.0f} MB/s  ({min(found):.0f} - {max(found):.0f})")
    for ours in (BLOCKS, LANES, PREAD, HELD):
        _say_ratio(rates, ours, PLAIN)
    _say_ratio(rates, LANES, RANDOM)


def _options(seconds: float, mb: int, sample_kb: int, folder: Path) -> list[str]:
    options = {"--seconds": seconds, "--mb": mb, "--sample-kb": sample_kb, "--folder": folder.resolve()}
    return [str(word) for pair in options.items() for word in pair]


def _say_ratio(rates: dict[str, list[float]], ours: str, other: str) -> None:
    """By rounds: what slowed one round slowed both."""
    ratios = [a / b for a, b in zip(rates[ours], rates[other], strict=True)]
    click.echo(f"{ours} / {other}: {statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})")


if __name__ == "__main__":
    main()
