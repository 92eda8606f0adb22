"""
Photos in memory and on a slow disk: by scripts, in place, indexed, packed; ``python -m benchmarks.slow_disk FOLDER``.

The kernel slows the disk down for the measured process alone, to so many requests and bytes a second (the blkio
controller of cgroup v1, or io.max of v2; both need root). Every case of every round is a fresh process that goes once
through the photos in a shuffled order, with RandomResizedCrop(224) and a flip, on two threads or two workers: warm,
then cold, with the disk slowed down and the photos' pages dropped from the page cache (POSIX_FADV_DONTNEED: these
files' only). What the kernel knows of names and inodes stays in memory: opening a file costs no request here, which it
does on a disk that is really cold. What the loader and ``fastio doctor`` say of a cold folder is printed, too.
``--copies`` writes each photo so many times, for an epoch that takes some seconds.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import click

__all__ = ["main"]

_CGROUPS = Path("/sys/fs/cgroup")
_NAME = "fastio-slow-disk"
_BATCH_SIZE = 32


@contextmanager
def throttled(place: Path, *, requests_per_s: int, bytes_per_s: int) -> Iterator[Path]:
    """
    Slow down reads of the disk below ``place`` for processes that write their number into the file that this yields.

    Raises ClickException where the kernel does not let us.
    """
    number = place.stat().st_dev
    device = Path("/sys/dev/block", f"{os.major(number)}:{os.minor(number)}").resolve()
    device = device.parent if (device / "partition").exists() else device
    try:
        name = (device / "dev").read_text().strip()
        if (_CGROUPS / "blkio").is_dir():
            group = _CGROUPS / "blkio" / _NAME
            group.mkdir(exist_ok=True)
            (group / "blkio.throttle.read_iops_device").write_text(f"{name} {requests_per_s}")
            (group / "blkio.throttle.read_bps_device").write_text(f"{name} {bytes_per_s}")
        else:
            group = _CGROUPS / _NAME
            group.mkdir(exist_ok=True)
            (group / "io.max").write_text(f"{name} riops={requests_per_s} rbps={bytes_per_s}")
    except OSError as exc:
        raise click.ClickException(f"{place}: its disk cannot be slowed down here: {exc}") from exc
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def drop(paths: list[Path]) -> None:
    """Drop the pages of these files."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill(paths: list[Path]) -> None:
    """Read these files, so that their pages are in memory."""
    for path in paths:
        path.read_bytes()


def _loader(path: Path) -> Any:
    from fastio import FastLoader
    from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

    steps = [RandomResizedCrop(224), RandomHorizontalFlip()]
    return FastLoader(path, _BATCH_SIZE, shuffle=True, seed=1, threads=2, transforms=steps)


def _files(path: Path) -> Any:
    from torch.utils.data import DataLoader

    from benchmarks.one_line import Files, as_bytes
    from benchmarks.peers.files_pil import random_224

    random.seed(1)
    photos = Files(sorted(path.rglob("*.*")), lambda picture: as_bytes(random_224, picture))
    return DataLoader(photos, _BATCH_SIZE, shuffle=True, num_workers=2)


CASES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "files, Pillow, DataLoader with 2 workers": ("photos", _files),
    "FastLoader in place": ("photos", _loader),
    "FastLoader in place, after fastio index": ("indexed", _loader),
    "FastLoader, packed": ("packed.lmdb", _loader),
}


def one_epoch(name: str, folder: Path, procs: Path) -> dict[str, Any]:
    """Go once through the photos; photos a second, and what the loader says of the files that it opened."""
    where, loader_of = CASES[name]
    loader = loader_of(folder / where)
    procs.write_text(str(os.getpid()))  # what is imported and opened so far was not slowed down
    count, begun = 0, time.perf_counter()
    for images, _ in loader:
        count += len(images)
    seconds = time.perf_counter() - begun
    opens = getattr(getattr(loader, "stats", None), "opens", None)
    words = opens.gain(seconds).words() if opens is not None and opens.gain(seconds).is_much else ""
    return {"photos_per_s": count / seconds, "words": words}


def prepare(source: Path, folder: Path, copies: int) -> None:
    """Write the photos of each case."""
    from fastio.converters import open_source, pack
    from fastio.store.foreign.index import index_store

    for path in sorted(source.rglob("*.*")):
        for number in range(copies):
            target = folder / "photos" / path.parent.name / f"{path.stem}-{number}{path.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    shutil.copytree(folder / "photos", folder / "indexed")
    pack(open_source(folder / "photos"), folder / "packed.lmdb")
    index_store(str(folder / "indexed"))
    from fastio import FastDataset

    FastDataset(folder / "photos")  # keeps its index, as that of photos of yesterday is


@click.command(help=__doc__)
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--requests", default=1000, show_default=True, help="Reads a second that the disk serves.")
@click.option("--mb", default=100, show_default=True, help="Megabytes a second that it gives.")
@click.option("--copies", default=4, show_default=True, help="How many times each photo is written.")
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--case", hidden=True, help="Run this case alone.")
@click.option("--folder", hidden=True, type=click.Path(path_type=Path))
@click.option("--procs", hidden=True, type=click.Path(path_type=Path))
def main(
    source: Path,
    *,
    requests: int,
    mb: int,
    copies: int,
    rounds: int,
    case: str | None,
    folder: Path | None,
    procs: Path | None,
) -> None:
    """Prepare, slow the disk down, run the cases one after the other, print."""
    if case is not None:
        assert folder is not None
        assert procs is not None
        print(json.dumps(one_epoch(case, folder, procs)))
        return
    found: dict[tuple[str, bool], list[dict[str, Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        prepare(source, place, copies)
        every = [path for path in place.rglob("*") if path.is_file() and not path.name.endswith("-index")]
        with throttled(place, requests_per_s=requests, bytes_per_s=mb * 1_000_000) as group:
            for _ in range(rounds):
                for name, is_cold in product(CASES, (False, True)):
                    (drop if is_cold else fill)(every)
                    words = ["--case", name, "--folder", str(place), "--procs", str(group) if is_cold else os.devnull]
                    command = [sys.executable, "-m", "benchmarks.slow_disk", str(source), *words]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    found[name, is_cold].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"cold: {requests:,} reads and {mb:,} MB a second; photos a second, median of {rounds} (least to most)")
    for (name, is_cold), runs in found.items():
        rates = [run["photos_per_s"] for run in runs]
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
        print(f"{name:<42} {'cold' if is_cold else 'warm'} {spread:>20}  {runs[-1]['words']}")


if __name__ == "__main__":
    main()
