"""
Many small samples 30 ms away, 60 MB/s a connection, by FastLoader: ``python -m benchmarks.remote.small [--samples N]``.

Rows of 64 token ids in one HDF5 store; the first two ids say which row it is. An epoch with ``shuffle=True`` and one
with ``shuffle="full"`` are checked for giving each row once. Then ``--readers`` ranks open the store one after the
other, in one process; each takes a batch of 32 and leaves.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch  # noqa: F401 - so that no run counts its import
from rich.console import Console
from rich.table import Table

from benchmarks.process_tree import cpu_seconds
from benchmarks.remote.run import FAR, counted
from benchmarks.report import result_path, write_result
from fastio import FastDataset, FastLoader, Remote
from fastio.converters import open_source
from fastio.converters import pack as pack_store
from tests.servers.fault_server import FaultServer, why_no_nginx

__all__ = ["main"]

_BATCH_SIZE, _IDS = 256, 64


@click.command(help=__doc__)
@click.option("--samples", default=1_000_000, show_default=True, help="Rows.")
@click.option("--readers", default=256, show_default=True, help="Ranks that take a batch each.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(samples: int, readers: int, write: bool) -> None:
    """Pack, read, print."""
    if reason := why_no_nginx():
        raise click.ClickException(reason)
    runs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = _packed(Path(folder), samples)
        with FaultServer(Path(folder)) as server:
            url = f"{server.url}/{store.name}"
            for shuffle in (True, "full"):
                runs[f"shuffle={shuffle!r}"] = _measured(server, _epoch(url, shuffle, samples))
            for name, remote in (("no cache", Remote()), ("a cache", Remote(cache_dir=f"{folder}/cache"))):
                runs[f"{readers} readers, {name}"] = _measured(server, _first_batches(url, readers, remote))
        size = store.stat().st_size
    table = Table("", "first batch, s", "all, s", "CPU-s", "GETs", "bytes/set")
    for name, run in runs.items():
        cells = (f"{run[key]:.2f}" for key in ("first_batch_s", "wall_s", "cpu_s"))
        table.add_row(name, *cells, f"{run['gets']:,}", f"{run['sent_bytes'] / size:.3f}")
    Console(width=120).print(table)
    if write:
        write_result(result_path("remote", "small"), {"samples": samples, "store_bytes": size, "runs": runs})


def _packed(folder: Path, samples: int) -> Path:
    rows = np.random.default_rng(0).integers(0, 1 << 16, (samples, _IDS), dtype=np.uint16)
    rows[:, :2] = np.arange(samples, dtype=np.uint32).view(np.uint16).reshape(-1, 2)
    np.save(folder / "rows.npy", rows)
    pack_store(open_source(folder / "rows.npy"), folder / "rows.h5")
    return folder / "rows.h5"


def _measured(server: FaultServer, batches: Iterator[None]) -> dict[str, Any]:
    """What taking these batches took, and what the server saw of it; ``first_batch_s`` includes the opening."""
    server.clear()
    server.set_faults(*FAR)
    begun, cpu = time.perf_counter(), cpu_seconds()
    next(batches)
    first = time.perf_counter() - begun
    for _ in batches:
        pass
    spent = {"first_batch_s": first, "wall_s": time.perf_counter() - begun, "cpu_s": cpu_seconds() - cpu}
    return spent | counted(server.requests())


def _epoch(url: str, shuffle: Any, samples: int) -> Iterator[None]:
    numbers = []
    with FastLoader(FastDataset(url), _BATCH_SIZE, shuffle=shuffle, threads=2) as loader:
        for batch in loader:
            numbers.append(_numbers(batch))
            yield
    if not np.array_equal(np.sort(np.concatenate(numbers)), np.arange(samples)):
        raise click.ClickException(f"shuffle={shuffle!r}: an epoch gave other samples than each once")


def _first_batches(url: str, readers: int, remote: Remote) -> Iterator[None]:
    """The first batch of each rank; a sample that two of them get is an error."""
    numbers = []
    for rank in range(readers):
        dataset = FastDataset(url, remote=remote)
        with FastLoader(dataset, 32, shuffle=True, threads=1, rank=rank, world_size=readers) as loader:
            numbers.append(_numbers(next(iter(loader))))
            yield
        dataset.close()
    if len(np.unique(np.concatenate(numbers))) != 32 * readers:
        raise click.ClickException(f"{readers} readers: some got the same samples")


def _numbers(batch: Any) -> Any:
    rows = next(iter(batch.values())) if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else batch
    return np.ascontiguousarray(np.asarray(rows)[:, :2]).view(np.uint32)[:, 0].copy()


if __name__ == "__main__":
    main()
