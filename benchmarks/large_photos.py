"""
Wall time until one large photo is there, with one CPU and with all: ``python -m benchmarks.large_photos STORE``.

    [--rounds 5]

STORE holds photos, of 12 megapixels for example, packed as they are or with ``--restart``. Measured are a sample of the
dataset, whole and as a RandomResizedCrop(224), and the first batch of a FastLoader with one photo a batch. Every
measurement is a fresh process; ratios are those of one round, their median and range over the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.report import result_path, write_result
from benchmarks.rounds import interleaved, run_process

__all__ = ["main"]

WHOLE, CROP, FIRST_BATCH = "one sample, whole", "one sample, a crop", "first batch, a crop"
WORK = (WHOLE, CROP, FIRST_BATCH)
_SIZE = 224
_WARM = 2  # photos read first, which do not count
_FIRST_BATCHES = 8


def measure(work: str, path: str) -> dict[str, float]:
    """The median wall time of one photo, in milliseconds."""
    from fastio import FastDataset, FastLoader
    from fastio.transforms import RandomResizedCrop

    crop = RandomResizedCrop(_SIZE)
    times = []
    if work == FIRST_BATCH:
        dataset = FastDataset(path, mode="RGB")
        for _ in range(_WARM + _FIRST_BATCHES):
            begun = time.perf_counter()
            loader = FastLoader(dataset, 1, transforms=[crop])
            next(iter(loader))
            times.append(time.perf_counter() - begun)
    else:
        dataset = FastDataset(path, mode="RGB", transform=crop if work == CROP else None)
        for index in range(len(dataset)):
            begun = time.perf_counter()
            np.asarray(dataset[index][0])
            times.append(time.perf_counter() - begun)
    return {"ms": 1e3 * statistics.median(times[_WARM:])}


@click.command()
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option("--rounds", default=5, show_default=True)
def main(store: Path, rounds: int) -> None:
    """Measure each kind of work with one CPU and with all of them, in turn; print medians; write a file of results."""
    cpus = sorted(os.sched_getaffinity(0))
    cases = {f"{work}; {count} CPUs": (work, cpus[:count]) for work in WORK for count in (1, len(cpus))}

    def measured(name: str) -> dict[str, float]:
        work, chosen = cases[name]
        command = [sys.executable, "-m", "benchmarks.large_photos", "measure", work, str(store)]
        return run_process([*command, json.dumps(chosen)])

    results = interleaved(cases, measured, rounds=rounds)
    table = Table(title=f"milliseconds until a photo of {store.name} is there")
    for heading in ("work", "1 CPU", f"{len(cpus)} CPUs", "times as fast"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    for work in WORK:
        alone, together = ([run["ms"] for run in results.runs[f"{work}; {n} CPUs"]] for n in (1, len(cpus)))
        ratios = [one / other for one, other in zip(alone, together, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(work, f"{statistics.median(alone):.1f}", f"{statistics.median(together):.1f}", spread)
    Console().print(table)
    path = result_path("large-photos")
    write_result(path, {"settings": {"rounds": rounds}, "runs": results.runs})
    click.echo(f"written: results/{path.name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        os.sched_setaffinity(0, json.loads(sys.argv[4]))
        print(json.dumps(measure(sys.argv[2], sys.argv[3])))
    else:
        main()
