"""The main job in two minutes: pictures as files, packed three ways, checked, read four ways; a table and a page.

    python -m benchmarks.demo

Every row is a process of its own that reads each sample once, decoded, into batches that a mock trainer discards.
Files and LMDB are then read under a mock training. The last line names the page, one HTML file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.demo_page import demo_page, verdict_sentence
from benchmarks.synthetic import make_pngs
from fastio.cli.info import sample_pictures
from fastio.measure.report.html import machine, versions, write_page
from fastio.store import open_store

__all__ = ["main"]

ROOT = Path(__file__).parent.parent
FORMATS = {"LMDB": "lmdb", "HDF5": "h5", "tar": "tar"}
TRAINED = ("files", "LMDB")
PICTURES_SHOWN = 30


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), default=ROOT / "demo", help="Where everything is made.")
@click.option("--count", default=10_000, show_default=True, help="How many pictures.")
@click.option("--step-ms", default=10.0, show_default=True, help="How long the mock training takes for a batch.")
def main(folder: Path, count: int, step_ms: float) -> None:
    """Make, pack, check, read, compare."""
    pngs = folder / "pngs"
    click.echo(f"making {count:,} PNGs of 32x32 in {_short(pngs)} ...")
    labels = make_pngs(pngs, count)
    checked = [_packed(name, pngs, labels) for name in FORMATS]
    rows = [_read("files", pngs, labels, step_ms)]
    rows += [_read(name, folder / f"pictures.{suffix}", labels, step_ms) for name, suffix in FORMATS.items()]
    Console().print(_table(rows))
    trained = [row for row in rows if row["name"] in TRAINED]
    click.echo(f"{verdict_sentence(trained)} (a mock training of {step_ms:g} ms a batch)")
    lmdb = folder / "pictures.lmdb"
    click.echo(f"next: fastio info {_short(lmdb)}, and likewise ls, show, verify, unpack")
    page = folder / "report.html"
    _write(page, {"folder": _short(folder), "rows": rows, "checked": checked}, lmdb)
    click.echo("the same as a page, one file to open in a browser:")
    click.echo(_short(page))


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _packed(name: str, pngs: Path, labels: Path) -> dict[str, Any]:
    """Pack one format, and compare every sample with its file; what that found."""
    store = pngs.with_name(f"pictures.{FORMATS[name]}")
    _fastio("pack", str(pngs), str(store), "--labels", str(labels), "--overwrite")
    verified = json.loads(_fastio("verify", str(store), "--against", str(pngs), "--labels", str(labels), "--json"))
    return {
        "name": name,
        "samples": verified["samples"],
        "compared": verified["compared"],
        "problems": len(verified["problems"]),
    }


def _fastio(*arguments: str) -> str:
    """Run a command, which stops the demo if it fails; what it prints is shown, but for JSON, which is returned."""
    command = [str(Path(sys.executable).with_name("fastio")), *arguments]
    is_json = "--json" in arguments
    print("$ fastio", *(_short(Path(a)) if "/" in a else a for a in arguments), flush=True)
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE if is_json else None)
    if done.returncode != 0:
        raise click.ClickException(f"fastio {arguments[0]} failed\n{done.stdout or ''}".strip())
    return done.stdout or ""


def _read(name: str, path: Path, labels: Path, step_ms: float) -> dict[str, Any]:
    """One epoch in a fresh process; its line of JSON."""
    step = step_ms if name in TRAINED else 0.0
    command = [sys.executable, "-m", "benchmarks.demo_epoch", name, str(path), str(labels), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"reading {name} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    disk = [p.stat() for p in path.iterdir()] if path.is_dir() else [path.stat()]
    return {"name": name, "disk_bytes": sum(s.st_blocks * 512 for s in disk), **result}


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
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


def _write(target: Path, report: Mapping[str, Any], store: Path) -> None:
    """Write the page with pictures of the store, the machine and the versions."""
    with open_store(store) as opened:
        page = demo_page(report, sample_pictures(opened, count=PICTURES_SHOWN))
    made = f"{report['rows'][0]['samples']:,} PNGs of 32x32, made from a seed"
    settings = [("command", "make demo"), ("pictures", made)]
    write_page(target, page, {"Settings": settings, "Machine": machine(), "Versions": versions()})


if __name__ == "__main__":
    main()
