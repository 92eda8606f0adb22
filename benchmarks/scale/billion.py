"""
A billion rows, packed in parts and merged: what opening, the first batch, ranks and batches take.

    python -m benchmarks.scale.billion FOLDER [--rows 1000000000] [--parts 10] [--ranks 8] [--rounds 5] [--no-write]

Rows of one or two token ids and keys that count up are packed into tar files, which are merged; 21 GB for a billion.
Every figure is of a fresh process; what is in FOLDER already is not packed again. "Cold": pages of all files are
dropped from the page cache before. Rates are those of the same rows, of which a second set has a million.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from benchmarks.process_tree import cpu_seconds
from benchmarks.report import result_path, write_result
from benchmarks.rounds import ROOT, interleaved, run_process
from benchmarks.scale.rows import BATCH

__all__ = ["check", "main", "memory", "most_anonymous", "pack", "row"]

_STEP = 1_000_000  # rows that are packed at a time, and after which ids repeat
_FEW = 1_000_000  # rows of the set that rates are compared with
_EPOCHS = 6  # that are begun untimed, which touches the whole index of a billion rows, and as many that are timed
_WARM, _TIMED = 500, 3_000  # batches of each, the first ones never timed
_SHUFFLES: dict[str, bool | str] = {"full": "full", "shuffle": True, "in order": False}


def row(number: int) -> list[int]:
    """The ids of a row: one or two numbers that go on from those of the row before."""
    at = number % _STEP
    first = at // 2 * 3 + at % 2
    return [(first + i) % (1 << 16) for i in range(1 + at % 2)]


def pack(path: str, start: int, stop: int) -> None:
    """A store of these rows, whose keys are their numbers."""
    from fastio.store import SampleBatch, create_store
    from fastio.types.schema import TOKENS, Field, Schema
    from fastio.types.spans import Spans

    ids = np.arange(3 * _STEP // 2, dtype=np.int64).astype("<u2").view(np.uint8)
    sizes = 2 + 2 * (np.arange(_STEP, dtype=np.int64) % 2)
    starts = np.cumsum(sizes) - sizes
    with create_store(path, Schema((Field("tokens", TOKENS, "<u2", (None,)),))) as writer:
        while start < stop:
            count = min(_STEP - start % _STEP, stop - start)
            some = slice(start % _STEP, start % _STEP + count)
            keys = [f"{number:010d}" for number in range(start, start + count)]
            writer.append(SampleBatch(keys, {"tokens": Spans.of(ids, starts[some], sizes[some])}))
            start += count
        writer.close({})


# What one process does, and what it takes.


def memory() -> dict[str, float]:
    """The memory of this process in MB: what it alone has, of it what is no file's page, and its share of all."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    mb = {name: int(value.split()[0]) / 1024 for name, _, value in (line.partition(":") for line in lines)}
    private = mb["Private_Clean"] + mb["Private_Dirty"]
    return {"private_mb": private, "anonymous_mb": mb["Anonymous"], "pss_mb": mb["Pss"], "rss_mb": mb["Rss"]}


@contextmanager
def most_anonymous(found: dict[str, float]) -> Iterator[None]:
    """Look ten times a second how much memory of no file there is, and keep the most as ``most_anonymous_mb``."""
    over = threading.Event()
    found["most_anonymous_mb"] = memory()["anonymous_mb"]

    def look() -> None:
        while not over.wait(0.1):
            found["most_anonymous_mb"] = max(found["most_anonymous_mb"], memory()["anonymous_mb"])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _since(before: dict[str, float], name: str) -> dict[str, float]:
    return {f"{name}_{figure}": mb - before[figure] for figure, mb in memory().items()}


def _merge(out: str, *parts: str) -> dict[str, float]:
    from fastio.store.sets.merge import merge_stores

    found: dict[str, float] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    with most_anonymous(found):
        report = merge_stores(parts, out)
    return {**found, "rows": report.samples, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def _first(path: str, shuffle: str, rank: str = "0", ranks: str = "1") -> dict[str, float]:
    """Open a set and take the first batch; of several ranks, wait for a line before each and behind it."""
    import torch  # noqa: F401 - whose memory is no set's

    from fastio import FastDataset, FastLoader

    before, wall, cpu = memory(), time.perf_counter(), time.process_time()
    if int(ranks) > 1:
        print("ready", flush=True)
        input()
        wall, cpu = time.perf_counter(), time.process_time()
    dataset = FastDataset(path)
    opened = {"opened_s": time.perf_counter() - wall, "opened_cpu_s": time.process_time() - cpu}
    opened |= _since(before, "opened")
    place = {"rank": int(rank), "world_size": int(ranks)} if int(ranks) > 1 else {}
    batches = iter(FastLoader(dataset, BATCH, shuffle=_SHUFFLES[shuffle], seed=1, collate="pad", **place))
    next(batches)
    first = {"first_s": time.perf_counter() - wall, "first_cpu_s": time.process_time() - cpu}
    if int(ranks) > 1:
        for _ in range(100):
            next(batches)
        print("there", flush=True)
        input()
    return {**opened, **first, **_since(before, "first")}


def _rate(path: str, shuffle: str) -> dict[str, float]:
    """Take batches of an index that was touched before; CPU time of the process a sample."""
    from fastio import FastDataset, FastLoader

    loader = FastLoader(FastDataset(path), BATCH, shuffle=_SHUFFLES[shuffle], seed=1, collate="pad")
    wall_s = cpu_s = 0.0
    for epoch in range(2 * _EPOCHS):
        if epoch == _EPOCHS:
            wall_s = cpu_s = 0.0
        loader.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(_WARM):
            next(batches)
        wall, cpu = time.perf_counter(), cpu_seconds()
        for _ in range(_TIMED):
            next(batches)
        wall_s, cpu_s = wall_s + time.perf_counter() - wall, cpu_s + cpu_seconds() - cpu
    samples = _EPOCHS * _TIMED * BATCH
    return {"samples": samples, "cpu_s": cpu_s, "wall_s": wall_s, "ns": 1e9 * cpu_s / samples}


def check(path: str) -> dict[str, int]:
    """Compare rows anywhere in the set with what was packed. RuntimeError if one differs."""
    from fastio.store import open_store

    with open_store(path) as store:
        chosen = np.sort(np.random.default_rng(0).integers(0, len(store), 10_000))
        values = [view.view("<u2").tolist() for view in store.spans("tokens", chosen).views()]
        expected = [row(number) for number in chosen.tolist()]
        if values != expected or store.keys(chosen) != [f"{number:010d}" for number in chosen.tolist()]:
            raise RuntimeError(f"{path}: has other rows than were packed")
    return {"compared": len(chosen)}


_ROLES: dict[str, Callable[..., dict[str, Any]]] = {
    "merge": _merge,
    "first": _first,
    "rate": _rate,
    "check": check,
}


# The run.


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--rows", default=1_000_000_000, show_default=True)
@click.option("--parts", default=10, show_default=True)
@click.option("--ranks", default=8, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Of the rates.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(folder: Path, rows: int, parts: int, ranks: int, rounds: int, write: bool) -> None:
    """Pack, merge, measure; print all figures, and keep them as JSON."""
    console = Console()
    report: dict[str, Any] = {"settings": {"rows": rows, "parts": parts, "ranks": ranks, "rounds": rounds}}

    def note(name: str, figures: Any) -> None:
        report[name] = figures
        console.print(name, json.dumps(figures), soft_wrap=True)

    folder.mkdir(parents=True, exist_ok=True)
    large, few = _set(folder, "all", rows, parts, note), _set(folder, "few", _FEW, parts, note)
    note("check", _run("check", large))
    for shuffle in ("full", "shuffle"):
        for state in ("cold", "warm", "warm again"):
            if state == "cold":
                _drop(folder)
            note(f"first, {shuffle}, {state}", _run("first", large, shuffle))
    for shuffle in ("full", "shuffle"):
        note(f"{ranks} ranks, {shuffle}", _ranks(large, shuffle, ranks))
    for shuffle in ("shuffle", "in order"):
        measured = interleaved((large, few), lambda path, order=shuffle: _run("rate", path, order), rounds=rounds)
        pairs = zip(measured.runs[large], measured.runs[few], strict=True)
        ratios = sorted(own["ns"] / other["ns"] for own, other in pairs)
        note(f"rate, {shuffle}", {"large": measured.runs[large], "few": measured.runs[few], "ratios": ratios})
    if write:
        write_result(result_path("scale-billion"), report)


def _set(folder: Path, name: str, rows: int, parts: int, note: Callable[[str, Any], None]) -> str:
    """Return the set of so many rows, packed in parts and merged; what is there is taken."""
    paths = [str(folder / f"{name}{number}.tar") for number in range(parts)]
    for number, path in enumerate(paths):
        if not Path(path).exists():
            wall, cpu = time.perf_counter(), time.process_time()
            pack(path, number * rows // parts, (number + 1) * rows // parts)
            figures = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
            note(f"packed {name}{number}", {**figures, "bytes": Path(path).stat().st_size})
    out = str(folder / f"{name}.fastio-set")
    if not Path(out).exists():
        figures = _run("merge", out, *paths)
        note(f"merged {name}", {**figures, "bytes": Path(out).stat().st_size})
    return out


def _run(role: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale.billion", role, *arguments]
    return run_process(command, timeout_s=3600)


def _ranks(path: str, shuffle: str, ranks: int) -> list[dict[str, Any]]:
    """Let so many processes take the batches of a rank each at once; the memory of each while all have theirs."""
    command = [sys.executable, "-m", "benchmarks.scale.billion", "first", path, shuffle]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(ranks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for rank in range(ranks)
    ]
    for _ in ("imported", "all have batches"):
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]


def _drop(folder: Path) -> None:
    """Drop the pages of all files in a folder from the page cache."""
    os.sync()
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in _ROLES:
        print(json.dumps(_ROLES[sys.argv[1]](*sys.argv[2:])), flush=True)
        os._exit(0)  # threads that read ahead need not end
    main()
