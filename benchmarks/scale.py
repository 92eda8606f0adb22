"""
Memory and time of opening and shuffling stores of many short samples: ``python -m benchmarks.scale [--most N]``.

Each store has texts of about 20 token ids, as many as its row says. A fresh process opens it, shuffles it and takes
batches of 256, by one of

* ``shuffle=True`` and ``shuffle="full"`` of FastLoader,
* torch's DataLoader with ``shuffle=True`` (RandomSampler) over the same FastDataset, without workers.

Memory is the anonymous memory of the process (``/proc/self/smaps_rollup``) above that after the imports: what each
rank has for itself. Pages of the file, which processes share, do not count. ``peak_mb`` is looked at every 10 ms.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.report import result_path, write_result
from benchmarks.rounds import interleaved, run_process

__all__ = ["main"]

_LOADERS = ("shuffle=True", 'shuffle="full"', "DataLoader")
_BATCH = 256
_BATCHES = 200  # after the first one
_EVERY_S = 0.01


@click.command()
@click.option("--least", default=10_000, show_default=True, help="Samples of the smallest store.")
@click.option("--most", default=16_000_000, show_default=True, help="Samples of the largest; each has four times more.")
@click.option("--format", "suffix", default="h5", show_default=True, type=click.Choice(["h5", "lmdb"]))
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Another file than results/DATE-....json.")
@click.option("--case", nargs=2, hidden=True, help="Measure one store and loader in this process.")
def main(least: int, most: int, suffix: str, rounds: int, out: Path | None, case: tuple[str, str] | None) -> None:
    """Write the stores, open each in fresh processes, print medians and write all rounds as JSON."""
    if case is not None:
        print(json.dumps(_measured(*case)))
        return
    counts: list[int] = []
    while most >= least:
        counts.insert(0, most)
        most //= 4
    with tempfile.TemporaryDirectory() as folder:
        stores = {count: _packed(Path(folder, f"{count}.{suffix}"), count) for count in counts}
        names = {f"{count} {loader}": (count, loader) for count in counts for loader in _LOADERS}

        def measure(name: str) -> dict[str, Any]:
            count, loader = names[name]
            return run_process([sys.executable, "-m", "benchmarks.scale", "--case", str(stores[count]), loader])

        results = interleaved(names, measure, rounds=rounds)
    rows = [{"samples": names[name][0], "loader": names[name][1], "runs": runs} for name, runs in results.runs.items()]
    write_result(out or result_path("scale", suffix), {"format": suffix, "rows": rows, "failed": results.failed})
    _print(rows, results.failed)


def _packed(path: Path, count: int) -> Path:
    """Pack so many short lines as bytes."""
    lines = path.with_suffix(".txt")
    with lines.open("w") as file:
        file.writelines(f"line {number} of text\n" for number in range(count))
    packed = subprocess.run([sys.executable, "-m", "fastio", "pack", lines, path, "--tokenizer", "bytes"], check=False)
    if packed.returncode:
        raise click.ClickException(f"{path.name}: fastio pack ended with status {packed.returncode}")
    lines.unlink()
    return path


def _measured(path: str, loader: str) -> dict[str, Any]:
    """Return memory in MB and times in seconds of one loader."""
    from torch.utils.data import DataLoader

    from fastio import FastDataset, FastLoader

    before = _anonymous_mb()
    with _peak() as peak:
        begun = time.perf_counter()
        dataset = FastDataset(path)
        opened_s, opened_mb = time.perf_counter() - begun, _anonymous_mb() - before
        batches: Any
        if loader == "DataLoader":
            batches = iter(DataLoader(dataset, _BATCH, shuffle=True, collate_fn=list))
        else:
            shuffle: Any = True if loader == "shuffle=True" else "full"
            batches = iter(FastLoader(dataset, _BATCH, shuffle=shuffle, seed=1, collate="pad"))
        next(batches)
        first_s, first_mb = time.perf_counter() - begun, _anonymous_mb() - before
        cpu = time.process_time()
        taken = sum(1 for _ in islice(batches, _BATCHES))
        batch_us = 1e6 * (time.process_time() - cpu) / taken if taken else None
    figures = {"opened_s": opened_s, "first_s": first_s, "opened_mb": opened_mb, "first_mb": first_mb}
    return {**figures, "peak_mb": max(peak[0] - before, first_mb), "batch_us": batch_us}


def _anonymous_mb() -> float:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Anonymous":
            return int(value.split()[0]) / 1024
    raise RuntimeError("/proc/self/smaps_rollup has no line 'Anonymous'")


@contextmanager
def _peak() -> Iterator[list[float]]:
    """Look at the anonymous memory all the time; a list with the most there was."""
    most, is_done = [0.0], threading.Event()

    def look() -> None:
        while not is_done.wait(_EVERY_S):
            most[0] = max(most[0], _anonymous_mb())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        is_done.set()
        thread.join()


def _print(rows: list[dict[str, Any]], failed: dict[str, str]) -> None:
    table = Table(
        "samples", "loader", "opened, s", "first batch, s", "opened, MB", "first, MB", "peak, MB", "us a batch"
    )
    for row in rows:
        cells = [
            statistics.median(run[name] or 0.0 for run in row["runs"])
            for name in ("opened_s", "first_s", "opened_mb", "first_mb", "peak_mb", "batch_us")
        ]
        shown = [f"{cell:.3g}" if cell < 100 else f"{cell:,.0f}" for cell in cells]
        table.add_row(f"{row['samples']:,}", row["loader"], *shown)
    console = Console(width=120)
    console.print(table)
    for name, reason in failed.items():
        console.print(f"{name}: {reason}")


if __name__ == "__main__":
    main()
