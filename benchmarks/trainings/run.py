"""Input pipelines of whole trainings, compared with plain PyTorch: ``python -m benchmarks.trainings.run``.

Every run is a fresh process, rounds are interleaved, rates are photos per CPU-second of the process and its workers.
Photos are made from a seed unless a folder is given.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.rounds import Results, interleaved, run_process
from benchmarks.synthetic import make_photos
from benchmarks.trainings.work import LOADERS, TRAININGS, Work
from fastio.converters import open_source, pack

__all__ = ["main"]

_DATA = Path(__file__).parent.parent / ".data"
_RESULTS = Path(__file__).parent.parent / "results"


def _measure(training: str, work: Work, name: str, *, seconds: float) -> Any:
    described = json.dumps(dataclasses.asdict(work), default=str)
    return run_process([sys.executable, "-m", "benchmarks.trainings.measure", training, name, described, str(seconds)])


def _table(title: str, results: Results) -> Table:
    """Medians and spread, and fastio's rate over the other's by rounds."""
    table = Table("loader", "photos per CPU-second", "fastio is", title=title)
    rates = {name: [run["samples"] / run["cpu_s"] for run in runs] for name, runs in results.runs.items()}
    for name, cpu in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(rates["fastio"], cpu, strict=True)]
        gain = "" if name == "fastio" else f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(name, f"{statistics.median(cpu):,.0f} ({min(cpu):,.0f}-{max(cpu):,.0f})", gain)
    for name, reason in results.failed.items():
        table.add_row(name, reason, "")
    return table


@click.command(help=__doc__)
@click.option("--photos", type=click.Path(exists=True, path_type=Path), help="JPEGs in class folders.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds of each run after its first epoch.")
@click.option("--workers", default=0, show_default=True, help="Worker processes, or native threads (at least one).")
def main(photos: Path | None, rounds: int, seconds: float, workers: int) -> None:
    """Pack, measure, print, and keep all runs."""
    photos = photos or make_photos(_DATA / "photos")
    _DATA.mkdir(exist_ok=True)
    packed = _DATA / "trainings.lmdb"
    pack(open_source(photos), packed, overwrite=True)
    work = Work(photos, packed, batch_size=32, workers=workers)
    kept: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    for training in TRAININGS:
        results = interleaved(LOADERS, partial(_measure, training, work, seconds=seconds), rounds=rounds)
        Console().print(_table(training, results))
        kept[training] = {"runs": results.runs, "failed": results.failed}
    file = _RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{platform.node()}-trainings.json"
    file.write_text(json.dumps(kept, indent=1) + "\n")
    Console().print(f"all runs: {file}")


if __name__ == "__main__":
    main()
