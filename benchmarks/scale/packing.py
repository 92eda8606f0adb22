"""
What packing takes: memory against rows, with keys by a rule and without; and a set of very many shards.

    python -m benchmarks.scale.packing FOLDER [--rows 1000000,10000000] [--shards 200000] [--no-write]

Rows of 8 bytes go into one file by ``create_store``, which is removed again. Shards have a row each and are packed by
the command line, in two parts; then they are opened, read and verified, all with 256 descriptors a process. What is in
FOLDER already is not packed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from benchmarks.report import result_path, write_result
from benchmarks.rounds import run_process
from benchmarks.scale.billion import memory, most_anonymous

__all__ = ["KEYS", "main", "opened", "pack_rows"]

_DESCRIPTORS = 256
_AT_ONCE = 8192  # rows that are appended
_READ = 20_000  # samples of the shards, anywhere in the set
_VALUE = b"8 bytes."
KEYS: dict[str, Callable[[int], str]] = {
    "rule": "{:09d}".format,
    "sha1": lambda number: hashlib.sha1(b"%d" % number, usedforsecurity=False).hexdigest(),
}


def pack_rows(path: str, count: int, key: Callable[[int], str]) -> None:
    """A store of so many rows, whose keys follow from their numbers."""
    from fastio.store import SampleBatch, create_store
    from fastio.types.schema import BYTES, Field, Schema
    from fastio.types.spans import Spans

    value = np.frombuffer(_VALUE, np.uint8)
    with create_store(path, Schema((Field("value", BYTES, "|u1", (None,)),))) as writer:
        for start in range(0, count, _AT_ONCE):
            keys = [key(number) for number in range(start, min(start + _AT_ONCE, count))]
            starts = np.zeros(len(keys), np.int64)
            writer.append(SampleBatch(keys, {"value": Spans.of(value, starts, np.full(len(keys), len(_VALUE)))}))


# What one process does, and what it takes.


def _measured(work: Callable[[], object]) -> dict[str, float]:
    """Seconds, and the most memory of no file, above that before."""
    found: dict[str, float] = {}
    before, wall, cpu = memory()["anonymous_mb"], time.perf_counter(), time.process_time()
    with most_anonymous(found):
        work()
    figures = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return {**figures, "memory_mb": found["most_anonymous_mb"] - before}


def _rows(path: str, count: str, keys: str) -> dict[str, float]:
    import fastio.store.formats.hdf5  # noqa: F401 - whose memory is no store's

    figures = _measured(lambda: pack_rows(path, int(count), KEYS[keys]))
    return {**figures, "file_mb": Path(path).stat().st_size / 1e6}


def _command(*arguments: str) -> dict[str, float]:
    """Run a command of fastio. RuntimeError if it fails."""
    from fastio.cli import main as fastio

    def run() -> None:
        sys.argv = ["fastio", *arguments]
        try:
            fastio()
        except SystemExit as exc:
            if exc.code:
                raise RuntimeError(f"fastio {' '.join(arguments)}: ended with {exc.code}") from exc

    return _measured(run)


def opened(path: str) -> dict[str, float]:
    """Open a set, and compare samples anywhere in it."""
    from fastio.store import open_store

    stores: list[Any] = []
    figures = _measured(lambda: stores.append(open_store(path)))
    (store,) = stores
    order = np.random.default_rng(0).permutation(len(store))[:_READ]
    begun = time.perf_counter()
    for some in np.array_split(order, 20):
        values = [view.tobytes() for view in store.files.fetch(store.spans("text", some)).wait()[0].views()]
        if values != [_text(number) for number in some.tolist()]:
            raise RuntimeError(f"{path}: has other samples than were packed")
    read = {"read": len(order), "read_s": time.perf_counter() - begun}
    mapped = sum(".tar" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return {**figures, "shards": len(store.shard_paths), **read, "mapped": mapped}


def _text(number: int) -> bytes:
    return b"line %d" % number


_ROLES = {"rows": _rows, "command": _command, "opened": opened}


# The run.


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--rows", default="1000000,10000000", show_default=True)
@click.option("--shards", default=200_000, show_default=True)
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(folder: Path, rows: str, shards: int, write: bool) -> None:
    """Pack, open, verify; print all figures, and keep them as JSON."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, hard))
    console = Console()
    report: dict[str, Any] = {"settings": {"rows": rows, "shards": shards, "descriptors": _DESCRIPTORS}}

    def note(name: str, role: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "benchmarks.scale.packing", role, *arguments]
        report[name] = run_process(command, timeout_s=7200)
        console.print(name, json.dumps(report[name]), soft_wrap=True)

    folder.mkdir(parents=True, exist_ok=True)
    for count in (number for number in rows.split(",") if number):
        for suffix in ("h5", "lmdb"):
            for keys in KEYS:
                path = folder / f"rows.{suffix}"
                note(f"{count} rows, {keys}, {suffix}", "rows", str(path), count, keys)
                path.unlink()
    if shards:
        _shards(folder.resolve(), shards, note)
    if write:
        write_result(result_path("scale-packing"), report)


def _shards(folder: Path, count: int, note: Callable[..., None]) -> None:
    source, pattern, out = (str(folder / name) for name in ("lines.lmdb", "t-%06d.tar", "t.fastio-set"))
    if not Path(source).exists():
        lines = folder / "lines.txt"
        lines.write_bytes(b"".join(_text(number) + b"\n" for number in range(count)))
        note("source", "command", "pack", str(lines), source)
    for part in ("0/2", "1/2") if not Path(out).exists() else ():
        note(f"part {part}", "command", "pack", source, pattern, "--shard-size", "32", "--part", part)
    for name in ("opened", "opened again"):
        note(name, "opened", out)
    note("verified", "command", "verify", out)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in _ROLES:
        print(json.dumps(_ROLES[sys.argv[1]](*sys.argv[2:])), flush=True)
        os._exit(0)
    main()
