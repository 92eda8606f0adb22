"""The table of a run, from the JSON that is kept of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

__all__ = ["row_table", "table"]

_Run = dict[str, Any]


def table(report: dict[str, Any]) -> Table:
    """One line a case: medians, and the range of what varies; those that could not be run with the reason."""
    settings = report["settings"]
    result = Table(
        title=f"{settings['samples']:,} photos, {settings['photo_bytes'] / 1e9:.2f} GB, RandomResizedCrop(224), "
        f"{settings['rounds']} rounds"
    )
    for heading in (
        "case", "photos/s", "min - max", "/ CPU-s", "CPU-s/GiB", "first batch s", "GETs", "GETs/block", "bytes/set",
        "second epoch",
    ):  # fmt: skip
        result.add_column(heading, justify="left" if heading == "case" else "right")
    for name, runs in report["runs"].items():
        result.add_row(name, *_cells(runs, settings["photo_bytes"]))
    for name, reason in report["failed"].items():
        result.add_row(name, reason)
    return result


def row_table(report: dict[str, Any]) -> Table:
    """One line a case: medians; bytes are those of the rows, whatever a format adds to them."""
    settings = report["settings"]
    size = settings["samples"] * settings["row_bytes"]
    result = Table(title=f"{settings['samples']:,} rows of {settings['row_bytes']} bytes, {settings['rounds']} rounds")
    for heading in ("case", "first batch s", "all s", "CPU-s", "requests", "bytes/rows", "moved", "apart"):
        result.add_column(heading, justify="left" if heading == "case" else "right")
    for name, runs in report["runs"].items():
        cells = [f"{_median(runs, lambda run, key=key: run[key]):.2f}" for key in ("first_batch_s", "wall_s", "cpu_s")]
        cells.append(f"{_median(runs, lambda run: run['requests']['gets'] + run['requests']['others']):,.0f}")
        cells.append(f"{_median(runs, lambda run: run['requests']['sent_bytes'] / size):.3f}")
        if "moved" in runs[0]:
            cells += [f"{_median(runs, lambda run, key=key: run[key]):.3f}" for key in ("moved", "apart")]
        result.add_row(name, *cells)
    for name, reason in report["failed"].items():
        result.add_row(name, reason)
    return result


def _cells(runs: Sequence[_Run], size: int) -> list[str]:
    rates = [run["samples"] / run["wall_s"] for run in runs]
    cells = [
        f"{statistics.median(rates):,.0f}",
        f"{min(rates):,.0f} - {max(rates):,.0f}",
        f"{_median(runs, lambda run: run['samples'] / run['cpu_s']):,.0f}",
        f"{_median(runs, lambda run: run['cpu_s'] / (size / 2**30)):.2f}",
        f"{_median(runs, lambda run: run['first_batch_s']):.2f}",
    ]
    if not runs[0]["requests"]["gets"]:
        return [*cells, "", "", "", ""]
    second = [run["epochs"][1]["sent_bytes"] / size for run in runs if len(run["epochs"]) > 1]
    return [
        *cells,
        f"{_median(runs, lambda run: run['requests']['gets']):,.0f}",
        f"{_median(runs, lambda run: run['requests']['gets'] / run['requests']['blocks']):.3f}",
        f"{_median(runs, lambda run: run['epochs'][0]['sent_bytes'] / size):.3f}",
        f"{statistics.median(second):.3f} of the bytes" if second else "",
    ]


def _median(runs: Sequence[_Run], value: Callable[[_Run], float]) -> float:
    return statistics.median(value(run) for run in runs)
