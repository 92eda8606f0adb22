"""The main job in five minutes: pictures as files, packed three ways, read four ways, one table.

    python -m benchmarks.demo

Every row is a process of its own that reads each sample once, decoded, into batches that a mock
trainer discards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.synthetic import make_pngs

__all__ = ["main"]

ROOT = Path(__file__).parent.parent
FORMATS = {"LMDB": "lmdb", "HDF5": "h5", "tar": "tar"}


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), default=ROOT / "demo", help="Where everything is made.")
@click.option("--count", default=10_000, show_default=True, help="How many pictures.")
def main(folder: Path, count: int) -> None:
    """Make, pack, read, compare."""
    console = Console()
    pngs = folder / "pngs"
    console.print(f"making {count:,} PNGs of 32x32 in {_short(pngs)} ...")
    labels = make_pngs(pngs, count)
    for suffix in FORMATS.values():
        _fastio("pack", str(pngs), str(folder / f"pictures.{suffix}"), "--labels", str(labels), "--overwrite")
    rows = [_read("files", pngs, labels)]
    rows += [_read(name, folder / f"pictures.{suffix}", labels) for name, suffix in FORMATS.items()]
    console.print(_table(rows))
    console.print("next: fastio info | ls | show | verify | unpack", _short(folder / "pictures.lmdb"))


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _fastio(*arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("fastio")), *arguments]
    print("$ fastio", *(_short(Path(a)) if "/" in a else a for a in arguments), flush=True)
    subprocess.run(command, check=True, cwd=Path.cwd())


def _read(name: str, path: Path, labels: Path) -> dict[str, Any]:
    """One epoch in a fresh process; its line of JSON."""
    command = [sys.executable, "-m", "benchmarks.demo_epoch", name, str(path), str(labels)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"reading {name} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    disk = [p.stat() for p in path.iterdir()] if path.is_dir() else [path.stat()]
    return {"name": name, "disk_bytes": sum(s.st_blocks * 512 for s in disk), **result}


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"one epoch of {rows[0]['samples']:,} pictures on {len(os.sched_getaffinity(0))} cores")
    for heading in ("read from", "how", "samples/s", "ratio", "MB on disk", "files opened"):
        table.add_column(heading, justify="left" if heading in ("read from", "how") else "right")
    for row in rows:
        table.add_row(
            row["name"],
            row["how"],
            f"{row['samples_per_s']:,.0f}",
            f"{row['samples_per_s'] / rows[0]['samples_per_s']:.1f}x",
            f"{row['disk_bytes'] / 1e6:.1f}",
            f"{row['opened']:,}",
        )
    return table


if __name__ == "__main__":
    main()
